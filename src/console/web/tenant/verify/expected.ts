// A tenant's expectations of evidence, as typed, for each kind of it. Effects: this browser's storage; none of it is
// secret.

import { signal } from '@preact/signals'
import type { Pin } from '../../../../verifier/pins.ts'

export const EVIDENCE_KINDS = ['instance', 'gateway', 'build'] as const
export type EvidenceKind = (typeof EVIDENCE_KINDS)[number]

/** Pins of each kind, as the verifier has them; named here so that this part of the page does not load it. */
export const PINS_OF = {
  instance: ['measurement', 'operator-key', 'gateway', 'vmpl', 'crl', 'tcb'],
  gateway: ['measurement', 'allowlist', 'vmpl', 'crl', 'tcb'],
  build: ['measurement', 'vmpl', 'crl', 'tcb'],
} as const satisfies Record<EvidenceKind, readonly Pin[]>

export const UNATTESTED = ['none', 'host', 'no-worker', 'elsewhere'] as const

export type Expected = {
  /** JSON as `strongroom verify policy-example` prints it; empty: the strict default. */
  readonly policy: Readonly<Record<EvidenceKind, string>>
  /** Pins that are left out. */
  readonly waived: Readonly<Record<EvidenceKind, readonly Pin[]>>
  /** Upstreams outside of the measured VM that may get prompts: NAME=ORIGIN, separated by spaces. */
  readonly outside: string
  /** The one reason for which the gateway of an instance may be unattested. */
  readonly unattested: (typeof UNATTESTED)[number]
  /** PEM of a simulated platform's root; empty: none is trusted. */
  readonly simulatedRoot: string
}

const nothing: Expected = {
  policy: { instance: '', gateway: '', build: '' },
  waived: { instance: [], gateway: [], build: [] },
  outside: '',
  unattested: 'none',
  simulatedRoot: '',
}

const storageName = 'strongroom-expected'
const storedCharsMax = 262_144

export const expected = signal<Expected>(storedExpected())

export function expect(change: Partial<Expected>): void {
  expected.value = { ...expected.value, ...change }
  const text = JSON.stringify(expected.value)
  if (text.length <= storedCharsMax) localStorage.setItem(storageName, text)
}

export function waive(kind: EvidenceKind, pin: Pin, isWaived: boolean): void {
  const { waived } = expected.value
  const others = waived[kind].filter(name => name !== pin)
  expect({ waived: { ...waived, [kind]: isWaived ? [...others, pin] : others } })
}

export function outsideOf({ outside }: Pick<Expected, 'outside'>): string[] {
  return outside.split(/\s+/).filter(name => name !== '')
}

/** As this page once stored them; a field in another form is left out. */
function storedExpected(): Expected {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(storageName) ?? 'null')
    const field = (of: unknown, name: string): unknown => Reflect.get(Object(of), name)
    const text = (value: unknown) => (typeof value === 'string' ? value : '')
    const byKind = <T>(read: (kind: EvidenceKind) => T) =>
      Object.fromEntries(EVIDENCE_KINDS.map(kind => [kind, read(kind)])) as Record<EvidenceKind, T>
    return {
      policy: byKind(kind => text(field(field(stored, 'policy'), kind))),
      waived: byKind(kind => {
        const named = field(field(stored, 'waived'), kind)
        return PINS_OF[kind].filter(pin => Array.isArray(named) && named.includes(pin))
      }),
      outside: text(field(stored, 'outside')),
      unattested: UNATTESTED.find(word => word === field(stored, 'unattested')) ?? 'none',
      simulatedRoot: text(field(stored, 'simulatedRoot')),
    }
  } catch {
    return nothing
  }
}
