// The appliance at a glance: problems, capacity, running VMs, certificates.

import type { AdminStatus } from '../../../../contract/admin/admin.ts'
import { type HostProblem, problemKey } from '../../../../contract/admin/problems.ts'
import { bytesText, countsText, countText } from '../../core/format.ts'
import { useLoaded } from '../../core/loaded.ts'
import { operate } from '../../core/session.ts'
import { Card, Facts, Meter, Page, Shown } from '../../parts/page.tsx'
import { CommandLine, Foreign, Instant, Link, StateMark, Time } from '../../parts/text.tsx'

export function useStatus() {
  return useLoaded('/status', options => operate<AdminStatus>('/status', options), { topics: ['status'] })
}

export function OverviewPage() {
  const status = useStatus()
  const { data } = status
  return (
    <Page
      title="Overview"
      lead={data === null ? 'This appliance' : `${data.domain}, version ${data.version}`}
      command="strongroom status"
    >
      <Shown of={status} what="the status">
        {found => (
          <>
            <Problems problems={found.problems} />
            <div class="cards">
              <CapacityCard status={found} />
              <RunningCard status={found} />
              <PoolCard status={found} />
              <PlatformCard status={found} />
              <CertificatesCard status={found} />
              <BackupsCard backups={found.backups} />
              <AddressesCard status={found} />
              {found.fleet !== null && <FleetCard fleet={found.fleet} />}
            </div>
          </>
        )}
      </Shown>
    </Page>
  )
}

export function Problems({ problems }: { problems: readonly HostProblem[] }) {
  if (problems.length === 0) {
    return (
      <div class="note good" role="status">
        <p>Ready. No known problems.</p>
      </div>
    )
  }
  return (
    <ul class="alerts" aria-label="Problems">
      {problems.map(problem => (
        <li key={problemKey(problem)} class={problem.severity === 'critical' ? 'note bad' : 'note warn'}>
          <strong>{problem.name.replaceAll('_', ' ')}</strong>
          <p>
            {problem.subject !== null && !problem.detail.includes(problem.subject) && (
              <>
                <Foreign text={problem.subject} />:{' '}
              </>
            )}
            <Foreign text={problem.detail} />
          </p>
          <p>
            Affects <Foreign text={problem.affects} />. Began <Time at={problem.since} />.
          </p>
          <p class="remedy">
            <Foreign text={problem.remedy} />
          </p>
        </li>
      ))}
    </ul>
  )
}

function CapacityCard({ status: { capacity } }: { status: AdminStatus }) {
  const { memory_mib_used: memory, memory_mib_total, vcpus_used: vcpus, vcpus_total } = capacity
  const { addresses_used: addresses, addresses_total, addresses_resting: resting } = capacity
  const of = (used: number | null, total: number) => `${used ?? 'unknown'} of ${countText(total)}`
  const mib = 1_048_576
  const memoryText = `${memory === null ? 'unknown' : bytesText(memory * mib)} of ${bytesText(memory_mib_total * mib)}`
  return (
    <Card title="Capacity">
      <Meter label="Memory" used={memory} total={memory_mib_total} text={memoryText} />
      <Meter label="vCPUs" used={vcpus} total={vcpus_total} text={of(vcpus, vcpus_total)} />
      <Meter
        label="Addresses"
        used={addresses === null ? null : addresses + resting}
        total={addresses_total}
        text={of(addresses, addresses_total) + (resting === 0 ? '' : `, ${resting} reserved`)}
      />
    </Card>
  )
}

function RunningCard({ status }: { status: AdminStatus }) {
  const { gateway, builds } = status
  const isServing = gateway.placement === 'host' || gateway.state === 'serving'
  return (
    <Card title="Resources">
      <Facts
        rows={[
          ['Organizations', <Link href="/organizations">{status.organizations ?? 'unknown'}</Link>],
          ['Instances', <Link href="/instances">{countsText(status.instances)}</Link>],
          ['VMs', countsText(status.vms)],
          [
            'Gateway',
            gateway.placement === 'off' ? (
              'off'
            ) : (
              <Link href="/gateway">
                <StateMark
                  word={gateway.placement === 'host' ? 'in the daemon' : (gateway.state ?? 'no VM')}
                  tone={isServing ? 'good' : 'bad'}
                />
              </Link>
            ),
          ],
          ['Builds', builds === null ? 'off' : <Link href="/builds">{countsText(builds.states)}</Link>],
          builds?.disk_bytes == null ? null : ['Build files', bytesText(builds.disk_bytes)],
        ]}
      />
    </Card>
  )
}

function PoolCard({ status: { pool, builds } }: { status: AdminStatus }) {
  const isOff = pool.wanted === 0 && pool.warm + pool.booting === 0
  return (
    <Card title="Warm pool">
      <Facts
        rows={[
          ['Instances', isOff ? 'off' : `${pool.warm} warm, ${pool.booting} booting, ${pool.wanted} wanted`],
          pool.lacking === null ? null : ['Missing', pool.lacking],
          pool.next_attempt_at === null ? null : ['Next attempt', <Time at={pool.next_attempt_at} />],
          builds === null
            ? null
            : [
                'Builds',
                `${builds.warm} warm, ${builds.booting} booting, ${builds.wanted} wanted, ${builds.reserved} reserved`,
              ],
          builds?.lacking == null ? null : ['Missing for builds', builds.lacking],
        ]}
      />
    </Card>
  )
}

function PlatformCard({ status }: { status: AdminStatus }) {
  const { clock, log, collateral } = status
  return (
    <Card title="Platform">
      <Facts
        rows={[
          [
            'Evidence',
            status.evidence_simulated ? (
              <StateMark word="SIMULATED" />
            ) : (
              <StateMark word={status.platform} tone="good" />
            ),
          ],
          ['Host', <Foreign text={status.host_id} />],
          ['Started', <Time at={status.started_at} />],
          ['Clock', <StateMark word={clock.state} />],
          ['Log', log === null ? 'unknown' : <Link href="/log">{countText(log.size)} entries</Link>],
          collateral === null ? null : ['Collateral', <StateMark word={collateral.state} />],
          collateral === null ? null : ['Revocation list', <Time at={collateral.crl_next_update} none="unknown" />],
        ]}
      />
    </Card>
  )
}

function CertificatesCard({ status: { tls } }: { status: AdminStatus }) {
  return (
    <Card title="Certificates">
      <Facts
        rows={[
          ...tls.certificates.map(
            ({ name, expires_at }) => [name.replaceAll('_', ' '), <Time at={expires_at} />] as const,
          ),
          ...(tls.acme ?? []).map(
            ({ name, expires_at }) => [`${name} (ACME)`, <Time at={expires_at} none="none yet" />] as const,
          ),
          ['Issued by', tls.source === 'local' ? "this appliance's authority" : 'the operator'],
          tls.former === null ? null : ['Former names until', <Instant at={tls.former.until} />],
        ]}
      />
    </Card>
  )
}

function BackupsCard({ backups: { state, last, failure, nightly } }: { backups: AdminStatus['backups'] }) {
  return (
    <Card title="Backups">
      <Facts
        rows={[
          ['State', <StateMark word={state} />],
          ['Last', <Time at={last?.at ?? null} none="none known" />],
          last === null ? null : ['File', <Foreign text={last.file} />],
          last === null ? null : ['Size', bytesText(last.bytes)],
          failure === null ? null : ['Last failure', <Time at={failure.at} />],
          ['Next', nightly ? 'nightly, by the timer' : 'manual: the nightly timer is off'],
        ]}
      />
      <CommandLine command="strongroom help backup" />
    </Card>
  )
}

function AddressesCard({ status: { listen } }: { status: AdminStatus }) {
  return (
    <Card title="Addresses">
      <Facts
        rows={[
          ['Instances', <Foreign text={listen.instances} />],
          ['Inference', <Foreign text={listen.inference} none="off" />],
          ['Builds', <Foreign text={listen.builds} none="off" />],
          ['DNS', <Foreign text={listen.dns} none="off" />],
          ['Metrics', <Foreign text={listen.metrics} none="off" />],
        ]}
      />
    </Card>
  )
}

function FleetCard({ fleet }: { fleet: NonNullable<AdminStatus['fleet']> }) {
  const { has_lease: hasLease, is_draining: isDraining, is_reachable: isReachable } = fleet
  return (
    <Card title="Fleet">
      <Facts
        rows={[
          ['Name', <Foreign text={fleet.name} />],
          [
            'Lease',
            hasLease ? (
              <StateMark word={isDraining ? 'draining' : 'serving'} />
            ) : (
              <StateMark word="no lease: accepts no instances" tone="bad" />
            ),
          ],
          ['Directory', <Foreign text={fleet.database} />],
          isReachable ? null : ['Unreachable since', <Instant at={fleet.since} />],
          fleet.problem === null ? null : ['Problem', <Foreign text={fleet.problem} />],
          ['Hosts', <Link href="/fleet">all hosts of the fleet</Link>],
        ]}
      />
    </Card>
  )
}
