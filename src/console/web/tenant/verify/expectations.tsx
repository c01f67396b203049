// The tenant's expectations of evidence: policies, what may be left out, upstreams outside, and a simulated root.

import { Choice, TextArea, TextField, Tick } from '../../parts/field.tsx'
import { Card, Note, Page } from '../../parts/page.tsx'
import { CommandLine } from '../../parts/text.tsx'
import { EVIDENCE_KINDS, type EvidenceKind, expect, expected, PINS_OF, UNATTESTED, waive } from './expected.ts'

const TITLES = { instance: 'Instances', gateway: 'The gateway', build: 'Builds' } as const

/** As the options `--any-…` of `strongroom verify` say it. */
const WAIVERS = {
  measurement: 'Accept any measurement',
  allowlist: 'Accept any allowlist and any operator key',
  'operator-key': 'Accept any operator key',
  gateway: 'Accept any gateway in a measured VM',
  vmpl: 'Accept any VMPL',
  crl: 'Accept evidence without a revocation list',
  tcb: "Accept firmware below AMD's fixes",
} as const

const REASONS = {
  none: 'no: it has to be attested',
  host: "host: it runs in the host's own process",
  'no-worker': 'no-worker: its VM answers nothing itself',
  elsewhere: 'elsewhere: the operator names it',
} as const

export function ExpectationsPage() {
  const { outside, unattested, simulatedRoot } = expected.value
  return (
    <Page
      title="What you expect"
      lead="Evidence that is genuine can still be of somebody else's machine: say what you expect of it."
    >
      <Note>
        <p>A policy for an image of your own, or one whose operator you trust:</p>
        <CommandLine command="strongroom verify policy-example --image IMAGE --operator-key operator-key.pub.pem" />
        <p>It stays in this browser, and is no secret.</p>
      </Note>
      {EVIDENCE_KINDS.map(kind => (
        <PolicyCard key={kind} kind={kind} />
      ))}
      <Card title="Where prompts may go" wide>
        <TextField
          label="Upstreams outside of the measured VM that you accept"
          value={outside}
          change={text => expect({ outside: text })}
          hint="NAME=ORIGIN, with spaces in between. Empty: none."
        />
        <Choice
          label="A gateway that nothing vouches for"
          value={unattested}
          change={word => expect({ unattested: word })}
          options={UNATTESTED.map(word => [word, REASONS[word]] as const)}
        />
      </Card>
      <Card title="For development" wide>
        <TextArea
          label="Root of a simulated platform, PEM"
          value={simulatedRoot}
          change={text => expect({ simulatedRoot: text })}
          hint="With it, evidence that no hardware vouches for can pass; each verdict says SIMULATED."
        />
      </Card>
    </Page>
  )
}

function PolicyCard({ kind }: { kind: EvidenceKind }) {
  const { policy, waived } = expected.value
  return (
    <Card title={TITLES[kind]} wide>
      <TextArea
        label={`Policy for ${TITLES[kind].toLowerCase()}, JSON`}
        value={policy[kind]}
        change={text => expect({ policy: { ...policy, [kind]: text } })}
        hint="Empty: no debug, no migration, VMPL 0; a measurement is then missing."
      />
      <details>
        <summary>Leave out what you cannot expect: each verdict says so</summary>
        <div class="ticks">
          {PINS_OF[kind].map(pin => (
            <Tick
              key={pin}
              label={WAIVERS[pin]}
              value={waived[kind].includes(pin)}
              change={value => waive(kind, pin, value)}
            />
          ))}
        </div>
      </details>
    </Card>
  )
}
