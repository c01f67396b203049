// Goal: the order that a build VM gets says exactly what its request and the configuration say.

import { expect, test } from 'bun:test'
import { buildsSettings } from '../../scripts/rigs/build/builds-service.ts'
import { buildDeadlineMs, orderOf, ownOf } from '../../src/builds/order.plan.ts'
import { checkValue } from '../../src/contract/check.ts'
import { BuildOrder } from '../../src/contract/vm/build-order.ts'
import { buildId, buildRow } from '../rigs/build/build-row.ts'

const { limits, builderId } = buildsSettings
const fetch = { proxy: 'http://10.0.0.1:3128', cratesMirror: 'sparse+https://crates.example/', ca: 'PEM' }
const settings = { builderId, limits, fetch, imageSummary: 'f5'.repeat(32) }

test('goal: an archive is ordered by its digest, with everything that the request names', () => {
  const named = { projectDir: 'app', toolchain: 'nix', reproduce: true, waivers: ['any_toolchain'] } as const
  const row = buildRow({ ...named, options: { nix: { output: 'tool', caches: [] } } })
  expect(orderOf(row, { ...settings, fetch: null, imageSummary: null })).toEqual({
    jobId: buildId,
    nonce: '00ff',
    source: { kind: 'archive', name: 'demo.tar.gz', sizeBytes: 7, sha256: 'ab'.repeat(32) },
    projectDir: 'app',
    toolchain: 'nix',
    reproduce: true,
    options: { nix: { output: 'tool', caches: [] } },
    waivers: ['any_toolchain'],
    accepts: { caSha256: null, cratesMirror: null },
    builderId: 'https://builds.example',
    imageSummary: null,
    limits,
    fetch: null,
  })
})

test("goal: the service's own authorities reach only a build whose request names them", () => {
  const git = { sourceKind: 'git', repoUrl: 'https://git.example/a', repoRef: 'main' } as const
  const named = orderOf(buildRow({ ...git, fetchCaSha256: 'cd'.repeat(32), cratesMirror: 'm' }), settings)
  expect(named.source).toEqual({ kind: 'git', url: 'https://git.example/a', ref: 'main' })
  expect(named.accepts).toEqual({ caSha256: 'cd'.repeat(32), cratesMirror: 'm' })
  // A row from before there were waivers has none.
  expect(orderOf(buildRow({ waivers: null }), settings).waivers).toEqual([])
  expect([named.fetch, named.imageSummary]).toEqual([{ ...fetch, cratesMirror: 'm' }, 'f5'.repeat(32)])
  expect(orderOf(buildRow(git), settings).fetch).toEqual({ proxy: fetch.proxy, cratesMirror: null, ca: null })
})

test('goal: clients learn the digest of exactly the authorities that are sent', () => {
  expect(ownOf(settings)).toEqual({
    fetchCaSha256: '384fb9a44fabe158be2757b9b8d8f67029f2280fcc1776ab2a53103e6f0c582d',
    cratesMirror: fetch.cratesMirror,
  })
  expect(ownOf({ ...settings, fetch: { ...fetch, ca: null, cratesMirror: null } })).toEqual({
    fetchCaSha256: null,
    cratesMirror: null,
  })
  expect(ownOf({ ...settings, fetch: null })).toEqual({ fetchCaSha256: null, cratesMirror: null })
})

test('goal: a reproduced build has the time of two builds, and half an hour besides', () => {
  const times = { ...limits, fetchSeconds: 60, buildSeconds: 100 }
  expect(buildDeadlineMs({ reproduce: false }, times)).toBe((60 + 100 + 1_800) * 1_000)
  expect(buildDeadlineMs({ reproduce: true }, times)).toBe((60 + 200 + 1_800) * 1_000)
})

// Goal: a host hands on an option that a newer host wrote and that it does not know; a VM of its version refuses the
// order, so nothing is built without the option.
test('an option of a newer version', () => {
  const cargo = { package: null, bin: null, features: [], noDefaultFeatures: false, profile: null, target: null }
  const known = orderOf(buildRow({ options: { cargo } }), settings)
  expect(checkValue(BuildOrder, known).ok).toBe(true)
  const newer = { cargo: { ...cargo, sanitizer: 'address' } }
  const order = orderOf(buildRow({ options: newer }), settings)
  expect(order.options).toEqual(newer)
  expect(checkValue(BuildOrder, order)).toMatchObject({ ok: false })
})
