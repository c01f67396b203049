// The JSON schema of the documents that the verifying commands print with --json. Pure. Objects are open: later
// releases add fields, and readers must ignore unknown ones. Names and meanings of fields are stable.

import { type TProperties, type TSchema, Type } from '@sinclair/typebox'
import { GPU_MODES } from '../../attest/nvidia/opaque.ts'
import { ARCHITECTURES } from '../../attest/nvidia/policy.ts'
import { EgressPolicy } from '../../contract/http/egress-policy.ts'
import { BuildOrder } from '../../contract/vm/build-order.ts'
import { ClaimDocument } from '../../contract/vm/claim-document.ts'
import { LaunchDocument } from '../../contract/vm/launch.ts'
import { PublishedFacts } from '../../contract/vm/orders/published-facts.ts'
import { SecretFacts } from '../../contract/vm/orders/secret-facts.ts'
import { FAILURES } from '../../terminal/verdict-exit.ts'

const words = <Word extends string>(list: readonly Word[]) => Type.Union(list.map(word => Type.Literal(word)))
const orNull = <Schema extends TSchema>(schema: Schema) => Type.Union([schema, Type.Null()])
const hex = Type.String({ pattern: '^(?:[0-9a-f]{2})*$' })
const hexNumber = Type.String({ pattern: '^0x[0-9a-f]+$' })
const time = Type.String({ description: 'ISO 8601, UTC' })
const count = Type.Integer({ minimum: 0 })

const Check = Type.Object({
  name: Type.String({ description: 'stable; a group of checks has a / in it' }),
  result: words(['PASS', 'FAIL', 'NOT CHECKED']),
  outcome: words(['pass', 'fail', 'not-checked']),
  reason: Type.String({ description: 'for people; its words may change' }),
  required: Type.Boolean({ description: 'the verdict is good only if it passed' }),
})

/** Fields of every verdict. */
const verdictFields = {
  ok: Type.Boolean({ description: 'the verdict; exit code 0' }),
  failed: Type.Union([...FAILURES.map(failure => Type.Literal(failure)), Type.Null()], {
    description:
      'why it is not good: evidence that is not genuine (exit code 1), input that cannot be read or was not given (2), genuine evidence that a policy, a pin or a floor refuses, or for which a required pin was not named (6), a gateway that does not answer to the end (3)',
  }),
  simulated: Type.Optional(Type.Boolean({ description: "the evidence ends at a root that is not AMD's" })),
  checks: Type.Array(Check),
}

const Verdict = Type.Object(verdictFields)
const Image = Type.Object({ name: Type.String(), measurement: hex })

const named = { set: Type.Array(Type.String()), unknown: Type.Array(Type.Integer()) }
const Tcb = Type.Object({
  value: hexNumber,
  ...optional(['fmc', 'bootloader', 'tee', 'snp', 'microcode'], orNull(count)),
})

const Report = Type.Object({
  version: count,
  signer: words(['vcek', 'vlek', 'none']),
  vmpl: count,
  ...propertiesOf(['measurement', 'report_data', 'host_data', 'chip_id', 'family_id', 'image_id'], hex),
  ...propertiesOf(['id_key_digest', 'author_key_digest', 'report_id', 'report_id_ma'], hex),
  guest_svn: count,
  policy: Type.Object({ value: hexNumber, abi: Type.String(), ...named }),
  platform_info: Type.Object({ value: hexNumber, ...named }),
  tcb: Type.Object(propertiesOf(['current', 'reported', 'committed', 'launch'], Tcb)),
  firmware: Type.Object(propertiesOf(['current', 'committed'], Type.String())),
  cpuid: orNull(Type.Object(propertiesOf(['family', 'model', 'stepping'], count))),
  mitigation: orNull(Type.Object(propertiesOf(['launch', 'current'], hexNumber))),
  signature_algorithm: count,
  key_info: Type.Object({ value: hexNumber, ...named }),
  signature: Type.Object(propertiesOf(['r', 's'], hex)),
  reserved: Type.Array(Type.Object({ offset: count, bytes: hex }), { description: 'those that are not zero' }),
})

const Gpu = Type.Object({
  architecture: words(ARCHITECTURES),
  hwmodel: Type.String(),
  ...propertiesOf(['driver_version', 'vbios_version'], Type.String()),
  mode: words(GPU_MODES),
  ueid: Type.String({ description: "decimal, as in NVIDIA's tokens; not NVML's UUID" }),
  device_serial: Type.String({ description: 'of the device certificate; it stays when firmware changes' }),
  board: orNull(Type.String({ description: 'project, its SKU and the SKU of the chip' })),
  uncompared: Type.Array(count, { description: 'measurements for which no manifest has a value' }),
})

const Switch = Type.Object({
  ...propertiesOf(['hwmodel', 'bios_version', 'ueid', 'device_serial'], Type.String()),
  pdi: Type.String({ description: 'its own number, by which GPUs name it' }),
  gpu_pdis: Type.Array(Type.String(), { description: 'of the GPUs at its ports' }),
  lock_status: orNull(Type.String({ description: 'hexadecimal, as in the report; not judged' })),
  uncompared: Type.Array(count),
})

const Attestation = Type.Object({
  issued_at: orNull(time),
  image: orNull(Image),
  configuration_sha256: orNull(hex),
  encryption_keys: orNull(Type.Object({ x25519: hex, xwing: hex })),
  gpu_evidence_sha256: orNull(hex),
  gpus: Type.Array(orNull(Gpu), {
    description: "the worker's, where their evidence was judged; null: cannot be read; trusted in a good verdict alone",
  }),
  receipts: Type.Array(Type.Object({ target: Type.String(), ...verdictFields })),
})

const Response = Type.Object({
  request_id: Type.String(),
  key_made_by: words(['client', 'host']),
  ...propertiesOf(['model', 'upstream', 'coverage'], Type.String()),
  issued_at: time,
  ...propertiesOf(['prompt_tokens', 'completion_tokens', 'events'], orNull(count)),
})

const Provenance = Type.Object({
  ...propertiesOf(['build_type', 'build_command', 'builder', 'job_id'], Type.String()),
  ...propertiesOf(['started', 'finished'], time),
  source: Type.Object({ uri: Type.String(), git_commit: orNull(Type.String()), git_tree: orNull(Type.String()) }),
  artifacts: Type.Array(Type.Object({ name: Type.String(), digest: Type.Record(Type.String(), hex) })),
})

const Quote = Type.Object({
  nonce: hex,
  qualified_signer: hex,
  signature: Type.Object(propertiesOf(['scheme', 'hash'], Type.String())),
  clock_ms: Type.String({ pattern: '^[0-9]+$' }),
  clock_safe: Type.Boolean(),
  ...propertiesOf(['reset_count', 'restart_count'], count),
  firmware_version: hexNumber,
  pcr_digest: hex,
})

const bits = Type.Object({ value: hexNumber, ...named })

const TdxQuote = Type.Object({
  version: count,
  report_version: words(['1.0', '1.5']),
  ...propertiesOf(['qe_vendor_id', 'user_data', 'header_reserved', 'tee_tcb_svn', 'mr_seam', 'mr_signer_seam'], hex),
  ...propertiesOf(['mr_td', 'mr_config_id', 'mr_owner', 'mr_owner_config', 'report_data'], hex),
  ...propertiesOf(['seam_attributes', 'xfam'], hexNumber),
  td_attributes: bits,
  rtmrs: Type.Array(hex),
  ...propertiesOf(['tee_tcb_svn2', 'mr_service_td'], orNull(hex)),
  attestation_key: hex,
  qe: Type.Object({
    ...propertiesOf(['mr_enclave', 'mr_signer'], hex),
    ...propertiesOf(['isv_prod_id', 'isv_svn'], count),
  }),
})

const TdxEvent = Type.Object({ rtmr: count, type: hexNumber, digest: hex, data: orNull(hex) })
const Event = Type.Object({ pcr: count, type: hexNumber, digest: hex, data: orNull(hex) })

/** Present with --log. */
const Log = Type.Object({
  ...propertiesOf(['index', 'size'], orNull(count)),
  fork_evidence: orNull(Type.String({ description: 'file with both signed checkpoints of a fork' })),
})
const logField = { log: Type.Optional(Log) }

/** Present with --fetch. */
const downloads = {
  fetched: Type.Optional(Type.Record(Type.String(), Type.String(), { description: 'addresses of downloads' })),
  cached: Type.Optional(Type.Array(Type.String(), { description: 'files found in --cache' })),
  saved: Type.Optional(Type.Array(Type.String(), { description: 'files written' })),
}

/** Contents of a TDX quote, and of its collateral. */
const tdxFields = {
  quote: orNull(TdxQuote),
  tcb: orNull(Type.Object({ status: Type.String(), advisories: Type.Array(Type.String()), date: time })),
  platform: orNull(
    Type.Object({ ...propertiesOf(['fmspc', 'ppid', 'pce_id'], hex), components: Type.Array(count), pce_svn: count }),
  ),
  collateral_until: orNull(time),
}

/** Document of each command. */
export const VERDICT_DOCUMENTS = {
  report: Type.Object({
    ...verdictFields,
    as_of: time,
    product: orNull(Type.String()),
    report: orNull(Report),
    ...downloads,
  }),
  vtpm: Type.Object({
    ...verdictFields,
    kind: Type.String(),
    as_of: time,
    product: orNull(Type.String()),
    report: orNull(Report),
    tdx: orNull(Type.Object(tdxFields)),
    runtime_data: Type.Unknown({ description: "JSON of Azure's paravisor, which the report covers; null: none" }),
    attestation_key_sha256: orNull(hex),
    quote: Quote,
    pcrs: Type.Record(Type.String(), Type.Record(Type.String(), hex), { description: 'by bank, by index' }),
    event_log: orNull(
      Type.Object({ events: Type.Array(Event, { description: 'empty unless the quote proves them' }) }),
    ),
    ...downloads,
  }),
  tdx: Type.Object({
    ...verdictFields,
    as_of: time,
    ...tdxFields,
    event_log: orNull(
      Type.Object({ events: Type.Array(TdxEvent, { description: 'empty unless the quote proves them' }) }),
    ),
    ...downloads,
  }),
  gpu: Type.Object({
    ...verdictFields,
    as_of: time,
    gpus: Type.Array(orNull(Gpu), {
      description: 'null: cannot be read; the rest is trusted in a good verdict alone',
    }),
    switches: Type.Array(orNull(Switch), { description: 'as gpus' }),
    rims: Type.Array(
      orNull(
        Type.Object({
          kind: words(['driver', 'vbios', 'switch']),
          ...propertiesOf(['version', 'product'], Type.String()),
        }),
      ),
      { description: 'in the order of --rim; null: not good' },
    ),
    ...downloads,
  }),
  'id-block': Type.Object({ ...verdictFields, ...propertiesOf(['id_key_digest', 'author_key_digest'], orNull(hex)) }),
  // The fields of the attestation are absent if none was received.
  gateway: Type.Object({ ...verdictFields, ...Type.Partial(Attestation).properties, ...logField }),
  response: Type.Object({ ...verdictFields, as_of: time, response: orNull(Response), attestation: Attestation }),
  instance: Type.Object({
    ...verdictFields,
    as_of: time,
    issued_at: orNull(time),
    image: orNull(Image),
    operator_key: orNull(hex),
    launch: orNull(LaunchDocument),
    claim: orNull(ClaimDocument),
    host_key: orNull(Type.Object({ fingerprint: Type.String(), line: orNull(Type.String()) })),
    login_keys: orNull(
      Type.Array(Type.String(), { description: 'all that log in, by signed orders; null: only the key of the claim' }),
    ),
    reach: orNull(
      Type.Object(EgressPolicy.properties, { description: 'enforced inside the VM; null: the VM restricts nothing' }),
    ),
    secrets: Type.Array(SecretFacts, { description: 'names and hosts of secrets, by signed orders' }),
    published: Type.Array(PublishedFacts, { description: 'ports that anyone reaches by TLS, by signed orders' }),
    xwing_public_key: orNull(Type.String({ description: 'base64url' })),
    receipt: orNull(Verdict),
    ...logField,
    known_hosts: Type.Optional(
      orNull(
        Type.Object({
          file: Type.String(),
          written: Type.Boolean(),
          replaced: count,
          hashed_lines: Type.Array(Type.Integer()),
        }),
      ),
    ),
  }),
  build: Type.Object({
    ...verdictFields,
    rests_on: Type.Array(Type.String()),
    as_of: time,
    first_broken: orNull(Type.String()),
    slsa: Type.Object({
      ...propertiesOf(['build', 'build_environment'], orNull(Type.String())),
      missing: Type.Array(Type.String()),
    }),
    measurement: orNull(hex),
    operator_key: orNull(hex),
    tpm: orNull(Type.String()),
    order: orNull(BuildOrder),
    provenance: orNull(Provenance),
    receipts: Type.Object(propertiesOf(['dispatch', 'completion'], orNull(Verdict))),
    report: orNull(Verdict),
    ...logField,
  }),
} as const satisfies Readonly<Record<string, TSchema>>

/** JSON Schema, 2020-12. */
export const verdictSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Documents of `strongroom verify COMMAND --json`; $defs has each COMMAND',
  anyOf: Object.keys(VERDICT_DOCUMENTS).map(name => ({ $ref: `#/$defs/${name}` })),
  $defs: VERDICT_DOCUMENTS,
}

function propertiesOf<Name extends string, Schema extends TSchema>(names: readonly Name[], schema: Schema) {
  return Object.fromEntries(names.map(name => [name, schema])) as Record<Name, Schema>
}

function optional(names: readonly string[], schema: TSchema): TProperties {
  return Object.fromEntries(names.map(name => [name, Type.Optional(schema)]))
}
