// strongroom-gateway: the owner's requirements for the gateway, instead of the claim's. Effects: one file of the user.

import { messageOf } from '../../base/fault.ts'
import { readTextOrNull } from '../../linux/files.ts'
import { createAttestedSender } from '../../verifier/fetch/node-sender.ts'
import type { GuestPaths } from '../paths.ts'
import { attestedOptions, expectationBytesMax, readOwnGateway, readSettings } from './expectation.codec.ts'
import { readExpectation, removeOwnGateway, writeOwnGateway } from './expectation-files.ts'

export const gatewayUsage = `usage: strongroom-gateway show | accept SHA256 [NAME=URL …] | set < gateway.json | reset

Shows or sets what the inference gateway must prove to this instance before it gets a prompt.
  show   prints the present requirements as JSON, and on standard error whether they are from the claim or from you
  accept adds a workload.json by its SHA-256, and upstreams outside by name and address, to the present requirements
  set    takes such a document, of kind "attested", from standard input: measurements, operatorKey, workloads, outside, allow, simulatedRoot.
         The gateway must prove this from the next request on, until this VM ends; the attested claim does not change
  reset  restores the requirements of the claim
An update of the gateway changes its measurement; a change of its configuration changes its workload.json (HOST_DATA,
SHA-256). Compare them with what its operator publishes, then set them.
`

export type GatewayCommandSettings = {
  readonly paths: Pick<GuestPaths, 'gatewaySettings' | 'ownGateway'>
  readonly readInput: () => Promise<Uint8Array>
  readonly write: (text: string) => void
  readonly complain: (text: string) => void
}

export function gatewayCommandSettings(paths: GatewayCommandSettings['paths']): GatewayCommandSettings {
  return {
    paths,
    readInput: () => readBounded(Bun.stdin.stream()),
    write: text => void process.stdout.write(text),
    complain: text => void process.stderr.write(text),
  }
}

/** Resolves with the exit code. */
export async function gatewayCommand(argv: readonly string[], settings: GatewayCommandSettings): Promise<number> {
  const [name = '', ...words] = argv
  const act = COMMANDS.get(name)
  if (act === undefined || (name === 'accept' ? words.length === 0 : words.length > 0)) {
    settings.complain(gatewayUsage)
    return 2
  }
  try {
    await act(settings, words)
    return 0
  } catch (error) {
    settings.complain(`strongroom-gateway: ${messageOf(error)}\n`)
    return 1
  }
}

const COMMANDS = new Map([
  ['show', show],
  ['accept', accept],
  ['set', set],
  ['reset', reset],
])

function show({ paths, write, complain }: GatewayCommandSettings): void {
  const found = readExpectation(paths)
  if (found === null) throw new Error('this instance has no inference gateway')
  complain(`${found.by === 'claim' ? 'from the claim' : 'from you, instead of the claim'}:\n`)
  write(`${JSON.stringify(found.gateway, null, 2)}\n`)
}

/** Without `workloads` any workload.json of the operator is accepted, and its digest adds nothing. */
function accept(settings: GatewayCommandSettings, [workload = '', ...entries]: readonly string[]): void {
  const gateway = readExpectation(settings.paths)?.gateway
  if (gateway?.kind !== 'attested') throw new Error('the gateway of this instance proves nothing: nothing to accept')
  const { workloads } = gateway
  const outside = [...new Set([...gateway.outside, ...entries])].toSorted()
  const known = workloads === undefined ? {} : { workloads: [...new Set([...workloads, workload])].slice(-8) }
  enforce(settings, JSON.stringify({ ...gateway, ...known, outside }))
}

async function set(settings: GatewayCommandSettings): Promise<void> {
  enforce(settings, new TextDecoder('utf-8', { fatal: true }).decode(await settings.readInput()))
}

function enforce({ paths, complain }: GatewayCommandSettings, text: string): void {
  const settings = readTextOrNull(paths.gatewaySettings)
  if (settings === null) throw new Error('this instance has no inference gateway')
  const { platform, baseUrl } = readSettings(settings)
  if (!baseUrl.startsWith('https://'))
    throw new Error(`${baseUrl} is not https, so the gateway cannot prove its identity`)
  const gateway = readOwnGateway(text, platform)
  // Options that cannot be used are refused here and not at the next prompt. Nothing is sent.
  createAttestedSender(attestedOptions({ by: 'owner', baseUrl: new URL(baseUrl), gateway })).close()
  writeOwnGateway(paths, `${JSON.stringify(gateway)}\n`)
  complain('in force from the next request on; strongroom-verify shows the proof of the gateway\n')
}

function reset({ paths, complain }: GatewayCommandSettings): void {
  removeOwnGateway(paths)
  complain('the requirements of the claim are in force again\n')
}

async function readBounded(stream: ReadableStream<Uint8Array>): Promise<Uint8Array> {
  const chunks: Uint8Array[] = []
  let sizeBytes = 0
  for await (const chunk of stream) {
    sizeBytes += chunk.length
    if (sizeBytes > expectationBytesMax) throw new Error(`standard input has over ${expectationBytesMax} bytes`)
    chunks.push(chunk)
  }
  return new Uint8Array(Buffer.concat(chunks))
}
