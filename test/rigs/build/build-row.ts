// A row of a build of an archive that has just been accepted, for tests of pure modules.

import type { Build } from '../../../src/store/directory/build.table.ts'

export const buildId = '01234567-89ab-4cde-8f01-23456789abcd'

export function buildRow(changes: Partial<Build> = {}): Build {
  return {
    id: buildId,
    hostId: 'h1',
    organizationId: 'org-1',
    state: 'queued',
    nonce: '00ff',
    sourceKind: 'archive',
    sourceName: 'demo.tar.gz',
    sourceBytes: 7,
    sourceSha256: 'ab'.repeat(32),
    repoUrl: null,
    repoRef: null,
    projectDir: null,
    toolchain: null,
    reproduce: false,
    vmId: null,
    network: 'unused',
    evidence: null,
    simulated: null,
    measurement: null,
    resultBytes: null,
    resultSha256: null,
    provenanceSha256: null,
    errorType: null,
    error: null,
    diskBytes: 7,
    createdAtMs: 1_000,
    startedAtMs: null,
    orderedAtMs: null,
    finishedAtMs: null,
    closedAtMs: null,
    removedAtMs: null,
    options: null,
    waivers: [],
    fetchCaSha256: null,
    cratesMirror: null,
    sourceHostId: null,
    claims: 0,
    ...changes,
  }
}
