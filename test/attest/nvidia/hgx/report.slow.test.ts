// Goal: no change of a switch's evidence passes: of the report, the certificates or the document around them. Random
// bytes end as Malformed. STRONGROOM_GPU_MUTATIONS sets the number of changes; 100,000 take minutes.

import { expect, test } from 'bun:test'
import { createDraw } from '../../../../scripts/rigs/draw.ts'
import { Malformed } from '../../../../src/attest/malformed.ts'
import { readGpuEvidence } from '../../../../src/attest/nvidia/evidence.ts'
import { readSwitchesOfGpu, readSwitchFields } from '../../../../src/attest/nvidia/hgx/report.ts'
import { judgeSwitch } from '../../../../src/attest/nvidia/hgx/switch.ts'
import { noFiles } from '../../../../src/attest/nvidia/judge.ts'
import { decodeRoots } from '../../../../src/attest/nvidia/roots.ts'
import { decodeReport } from '../../../../src/attest/nvidia/spdm.ts'
import { toHex, utf8 } from '../../../../src/base/bytes.ts'
import { nativeP384 } from '../../../../src/linux/keys/native-p384.ts'
import { SMALL, simulatedHgx } from '../../../rigs/attest/gpu/hgx.ts'
import { asOfMs, evidenceDocument, nonce } from '../../../rigs/attest/gpu/simulated.ts'

const mutationCount = Number(process.env.STRONGROOM_GPU_MUTATIONS ?? 1_500)
const { base, gpus, switches, question } = await simulatedHgx(SMALL)
const [first] = switches
if (first === undefined) throw new Error('no switch')
const { report, certificates } = first.evidence
const roots = decodeRoots([base.roots])

/** Whether the document passes every check that needs no file, and what it says then. */
function accepted(document: Uint8Array): string | null {
  try {
    const [device, ...more] = readGpuEvidence(document)
    if (device === undefined || more.length > 0) return null
    const asked = { ...question, roots, files: noFiles(), nonce, asOfMs, verify: nativeP384 }
    const { checks } = judgeSwitch(device, asked)
    if (checks.some(({ outcome }) => outcome === 'fail')) return null
    // Zero bytes after the signature are not part of the report.
    const read = decodeReport(device.report, readSwitchFields)
    return JSON.stringify([device.arch, [read.signedBytes, read.signature, ...device.certificates].map(toHex)])
  } catch (error) {
    if (error instanceof Malformed) return null
    throw error
  }
}

const documentOf = (parts: { readonly report: Uint8Array; readonly certificates: readonly Uint8Array[] }) =>
  utf8(JSON.stringify([evidenceDocument({ arch: 'LS10', ...parts })]))

test('goal: nothing is accepted that changed', () => {
  const whole = documentOf({ report, certificates })
  const unchanged = accepted(whole)
  expect(unchanged).not.toBeNull()
  const draw = createDraw(11)
  const mutated = (bytes: Uint8Array) => {
    const changed = Uint8Array.from(draw(50) === 0 ? bytes.slice(0, draw(bytes.length)) : bytes)
    for (let count = 1 + draw(3); count > 0 && changed.length > 0; count -= 1) {
      const at = draw(changed.length)
      changed[at] = draw(2) === 0 ? draw(256) : (changed[at] ?? 0) ^ (1 << draw(8))
    }
    return changed
  }
  const forms = [
    () => documentOf({ report: mutated(report), certificates }),
    () => {
      const place = draw(certificates.length)
      return documentOf({ report, certificates: certificates.map((der, at) => (at === place ? mutated(der) : der)) })
    },
    () => mutated(whole),
  ]
  const odd: string[] = []
  let refused = 0
  for (let round = 0; round < mutationCount; round += 1) {
    const form = forms[draw(forms.length)]
    const document = form?.() ?? whole
    const found = accepted(document)
    if (found === null) refused += 1
    // The document's own nonce and white space in PEM are no evidence: what was read must be the same.
    else if (found !== unchanged) odd.push(toHex(document))
  }
  expect(odd).toEqual([])
  expect(refused).toBeGreaterThan(mutationCount * 0.8)
})

test('goal: every reader of opaque data ends as Malformed or with a value, whatever the bytes are', () => {
  const draw = createDraw(12)
  const opaqueOf = (bytes: Uint8Array) => decodeReport(bytes, opaque => opaque).fields
  const readers = [
    [opaqueOf(report), readSwitchFields],
    [opaqueOf(gpus[0]?.evidence.report ?? report), readSwitchesOfGpu],
  ] as const
  let read = 0
  for (let round = 0; round < 2_000; round += 1) {
    for (const [bytes, reader] of readers) {
      const noise = Uint8Array.from({ length: draw(300) }, () => draw(256))
      const changed = Uint8Array.from(round % 2 === 0 ? noise : bytes)
      for (let count = draw(4); count > 0 && changed.length > 0; count -= 1) changed[draw(changed.length)] = draw(256)
      try {
        reader(changed)
      } catch (error) {
        expect(error).toBeInstanceOf(Malformed)
      }
      read += 1
    }
  }
  expect(read).toBe(4_000)
})
