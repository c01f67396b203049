// One build: its record, its live log, its result, and the result with its evidence.

import { useSignal } from '@preact/signals'
import type { BuildRecord } from '../../../../contract/http/build-api.ts'
import { optionText } from '../../../../contract/http/option-words.ts'
import { bytesText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { BuildFailure, CancelBuild, isLiving } from '../../parts/build-end.tsx'
import { Card, Facts, Page, Shown } from '../../parts/page.tsx'
import { Digest, Foreign, Instant, Link, StateMark } from '../../parts/text.tsx'
import { EvidenceCard } from '../evidence.tsx'
import { askService, fetchBytes, useServiceUrl } from '../services.ts'
import { BuildLog } from './build-log.tsx'
import type { KnownBuild } from './known-build.ts'
import { knownBuild } from './known-builds.ts'
import { recordedOptions, requestNote, verifyBuildCommand } from './verify-command.ts'

const everyMs = 3_000
const resultBytesMax = 536_870_912

export function BuildPage({ id }: { id: string }) {
  const path = pathTo`/build/${id}`
  const found = useLoaded(path, options => askService<BuildRecord>('builds', path, options), { everyMs })
  const url = useServiceUrl('builds')
  const isCancelling = useSignal(false)
  const { data } = found
  return (
    <Page
      title={`Build ${id.slice(0, 8)}`}
      lead={<Link href="/tenant/builds">Builds</Link>}
      actions={
        data !== null &&
        isLiving(data) && (
          <button type="button" class="danger" onClick={() => (isCancelling.value = true)}>
            Cancel
          </button>
        )
      }
    >
      <Shown of={found} what="the build">
        {build => (
          <>
            <BuildFailure build={build} />
            <RecordCard build={build} />
          </>
        )}
      </Shown>
      <BuildLog id={id} />
      {data?.result != null && data.result.url !== null && <Result id={id} build={data} known={knownBuild(id)} />}
      {isCancelling.value && (
        <CancelBuild
          id={id}
          ask={() => askService('builds', path, { method: 'DELETE' })}
          command={`curl --cacert ca.pem -H "Authorization: Bearer $KEY" -X DELETE ${url}/build/${id}`}
          words="This stops the build and its VM now."
          close={() => (isCancelling.value = false)}
          cancelled={found.reload}
        />
      )}
    </Page>
  )
}

function RecordCard({ build }: { build: BuildRecord }) {
  const { source, attested, result } = build
  const words = source.kind === 'git' ? `${source.url} ${source.ref ?? ''}` : (source.name ?? 'archive')
  return (
    <Card title="Build" wide>
      <Facts
        rows={[
          ['State', <StateMark word={build.state} />],
          ['Source', <Foreign text={words.trim()} />],
          ['Directory', <Foreign text={build.project_dir} none="the root" />],
          ['Toolchain', build.toolchain ?? 'detected'],
          ['Options', <Foreign text={optionText(recordedOptions(build)) || null} none="none" />],
          ['Nonce', <Digest value={build.nonce} />],
          ['Measurement', <Digest value={attested?.measurement ?? null} none="none yet" />],
          ['Started', <Instant at={build.started_at} none="not yet" />],
          ['Finished', <Instant at={build.finished_at} none="not yet" />],
          result === null ? null : ['Result', bytesText(result.size_bytes)],
          result === null ? null : ['SHA-256 of the result', <Digest value={result.sha256} />],
        ]}
      />
    </Card>
  )
}

function Result({ id, build, known }: { id: string; build: BuildRecord; known: KnownBuild | null }) {
  const name = `${id.slice(0, 8)}.tar.gz`
  const load = async () => ({
    name,
    bytes: await fetchBytes('builds', `${pathTo`/build/${id}`}/result`, { bytesMax: resultBytesMax }),
    command: verifyBuildCommand(name, known, build),
  })
  return (
    <EvidenceCard title="Result and evidence" load={load} fresh={null}>
      <p>
        The archive contains the artifacts and the VM's signed statement about itself, the source and each artifact.{' '}
        {requestNote(known, build)}
      </p>
    </EvidenceCard>
  )
}
