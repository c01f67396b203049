// One build: its state, source, evidence and end.

import { useSignal } from '@preact/signals'
import type { AdminBuild } from '../../../../contract/admin/admin.ts'
import { commandOf } from '../../core/command.ts'
import { bytesText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { pathTo } from '../../core/path.ts'
import { may, operate } from '../../core/session.ts'
import { BuildFailure, CancelBuild, isLiving } from '../../parts/build-end.tsx'
import { Card, Facts, Page, Shown } from '../../parts/page.tsx'
import { Digest, Foreign, Instant, Link, StateMark } from '../../parts/text.tsx'
import { FollowedText } from '../followed-text.tsx'
import { sourceText } from './builds.tsx'

export function BuildPage({ id }: { id: string }) {
  const path = pathTo`/builds/${id}`
  const found = useLoaded(path, options => operate<AdminBuild>(path, options), { topics: ['builds'] })
  const isCancelling = useSignal(false)
  const { data } = found
  return (
    <Page
      title={`Build ${id.slice(0, 8)}`}
      lead={<Link href="/builds">Builds</Link>}
      command={commandOf(['builds', 'show', id])}
      actions={
        data !== null &&
        isLiving(data) &&
        may('POST /builds/:id/cancel') && (
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
            <div class="cards">
              <StateCard build={build} />
              <SourceCard build={build} />
              <ProvenanceCard build={build} />
            </div>
            {may('GET /builds/:id/log') && (
              <FollowedText
                title="Log"
                path={`${pathTo`/builds/${id}/log`}?follow=true`}
                of={id}
                command={commandOf(['builds', 'logs', id], { follow: true })}
              />
            )}
          </>
        )}
      </Shown>
      {isCancelling.value && (
        <CancelBuild
          id={id}
          ask={() => operate(pathTo`/builds/${id}/cancel`, { method: 'POST' })}
          command={commandOf(['builds', 'cancel', id])}
          words="This stops the build and its VM now."
          close={() => (isCancelling.value = false)}
          cancelled={found.reload}
        />
      )}
    </Page>
  )
}

function StateCard({ build }: { build: AdminBuild }) {
  const { vm, vm_id: vmId } = build
  return (
    <Card title="State">
      <Facts
        rows={[
          ['State', <StateMark word={build.state} />],
          ['Organization', <Foreign text={build.organization} none="none" />],
          ...(build.host === null ? [] : [['Host', <Foreign text={build.host} />] as const]),
          ['VM', vm === null ? vmId === null ? 'none yet' : 'gone' : <Foreign text={`${vm.id} ${vm.state}`} />],
          ['Network', build.network],
          ['Created', <Instant at={build.created_at} />],
          ['Started', <Instant at={build.started_at} none="not yet" />],
          ['Finished', <Instant at={build.finished_at} none="not yet" />],
          ['Files', bytesText(build.disk_bytes)],
        ]}
      />
    </Card>
  )
}

function SourceCard({ build }: { build: AdminBuild }) {
  return (
    <Card title="Source">
      <Facts
        rows={[
          ['Source', <Foreign text={sourceText(build.source)} />],
          ['SHA-256', <Digest value={build.source.sha256} />],
          ['Directory', <Foreign text={build.project_dir} none="the root" />],
          ['Toolchain', build.toolchain ?? 'detected'],
          ['Options', <Foreign text={build.options || null} none="none" />],
          ['Built twice to compare', build.reproduce ? 'yes' : 'no'],
        ]}
      />
    </Card>
  )
}

function ProvenanceCard({ build }: { build: AdminBuild }) {
  const { result } = build
  return (
    <Card title="Provenance">
      <Facts
        rows={[
          ['Measurement', <Digest value={build.measurement} none="none yet" />],
          [
            'Evidence',
            build.simulated === null ? (
              'none yet'
            ) : (
              <StateMark word={build.simulated ? 'SIMULATED' : 'hardware'} tone={build.simulated ? 'warn' : 'good'} />
            ),
          ],
          ['Nonce', <Digest value={build.nonce} />],
          ['Result', result === null ? 'none' : bytesText(result.size_bytes)],
          result === null ? null : ['SHA-256 of the result', <Digest value={result.sha256} />],
          result?.removed_at == null ? null : ['Removed', <Instant at={result.removed_at} />],
        ]}
      />
    </Card>
  )
}
