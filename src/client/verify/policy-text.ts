// A policy as JSON with comments, for people: each field with what it decides. Lines that begin with // are comments,
// which `--policy` leaves out. Pure.

import type { POLICY_FIELDS } from '../../attest/policy/schema.ts'
import { oneLine } from '../../terminal/render.ts'

type Name = keyof typeof POLICY_FIELDS
/** Fields that every policy has. */
type Required = { [Field in Name]: (typeof POLICY_FIELDS)[Field] extends { whenMissing: 'any' } ? never : Field }[Name]

/** The first fields are those that the questions of `verify policy init` decide. */
const COMMENTS: Readonly<Record<Exclude<Required, 'format'>, string>> = {
  measurements: 'Launch digests: which image may run. One for each shape of the VM.',
  idKeyDigest: 'Operator key: whose host launched it. A digest or PEM, or a list of these.',
  chipIds: 'Which machines: a list of chip_ids, or { "list": FILE, "maxAgeDays": N } signed by the operator key.',
  platformInfo: 'The host: each bit "required", "forbidden" or "any". smt: threads of others may share a core.',
  guestPolicy: 'What the launch allowed the host: debug and migrate let it read or move the memory.',
  vmpls: 'Privilege level in the VM. Software at a lower number controls it, so 0 is the safe one.',
  minimumTcb: "Least firmware when the report was made, by processor. The numbers are from AMD's bulletins.",
  minimumLaunchTcb: 'Least firmware at the launch: a later update does not repair it.',
  minimumFirmware: 'Least version of the SEV firmware, as { "major": 1, "minor": 55, "build": 0 }.',
  tcbOrder: 'Refuses firmware that reports or has committed more than it runs.',
  products: 'Processors: milan, genoa, turin.',
  signers: 'Key that signs reports: vcek (of a chip), vlek (of a cloud provider).',
  hostData: "Digest of the gateway's workload.json: its models and settings. `--workload` compares it as well.",
  authorKeyDigest: 'Key that certified the operator key. Hosts of this project have none.',
  keyInfo: 'Flags of the signing key. maskChipKey: the report has no signature that counts.',
  minimumGuestSvn: 'Least security version of the image. Images of this project leave it 0.',
  reportData: 'What the VM put into the report. Each command compares it itself.',
  reservedBytes: 'Refuses reports with bytes that have no meaning yet.',
}

const HEAD = `// A policy for SEV-SNP reports: \`strongroom verify gateway|instance|build|report --policy FILE\`.
// Lines that begin with // are comments. "any" skips a check. \`strongroom verify policy-schema\` has all fields.
`

/**
 * Returns the commented text. `policy`: the JSON form. `digestNames`: a name for each digest of `measurements`, such as
 * the shape of its VM.
 */
export function policyText(
  policy: Readonly<Record<string, unknown>>,
  digestNames: ReadonlyMap<string, string> = new Map(),
): string {
  const names = ['format', ...Object.keys(COMMENTS)]
  const others = Object.keys(policy).filter(name => !names.includes(name))
  const fields = [...names, ...others].map(name => {
    const comment = name in COMMENTS ? `\n  // ${COMMENTS[name as keyof typeof COMMENTS]}\n` : ''
    const lines = (JSON.stringify(policy[name], null, 2) ?? '"any"').split('\n')
    const value = name === 'measurements' ? lines.flatMap(line => withName(line, digestNames)) : lines
    return `${comment}  "${name}": ${value.join('\n  ')}`
  })
  return `${HEAD}{\n${fields.join(',\n')}\n}\n`
}

function withName(line: string, digestNames: ReadonlyMap<string, string>): readonly string[] {
  const name = digestNames.get(/"([0-9a-f]+)"/.exec(line)?.[1] ?? '')
  return name === undefined ? [line] : [`  // ${oneLine(name)}`, line]
}
