// A request by the verifier's package, in Bun and in Node: encrypted, over the pinned connection alone, and by the
// platform's own client, in turns. Effects: a gateway in this process, processes of clients, a temporary folder.

import { copyFileSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildVerifierPackage, packageName } from '../../build/verifier-package.ts'
import { clearRig } from '../../rigs/gateway/attestation.ts'
import { attestedOptions, startAttestedGateway } from '../../rigs/gateway/attested-gateway.ts'
import { KEY } from '../../rigs/gateway/server.ts'
import { startUpstream } from '../../rigs/gateway/upstream-server.ts'
import type { Figures } from '../bench-report.ts'

const rounds = 50
const clientTimeoutMs = 120_000
const clientName = 'package-client.mjs'

type Medians = { readonly sealed: number; readonly pinned: number; readonly plain: number }

/** Node is left out where there is none. */
export async function measurePackageRequests(): Promise<Figures> {
  await using undo = new AsyncDisposableStack()
  const folder = mkdtempSync(join(tmpdir(), 'srt-bench-package-'))
  undo.defer(() => rmSync(folder, { recursive: true, force: true }))
  undo.defer(clearRig)
  await buildVerifierPackage(join(folder, 'node_modules', packageName))
  copyFileSync(join(import.meta.dir, clientName), join(folder, clientName))
  const upstream = await startUpstream()
  undo.defer(upstream.stop)
  const gateway = undo.use(await startAttestedGateway(upstream))
  const input = JSON.stringify({ options: { ...(await attestedOptions()), url: gateway.url }, key: KEY, rounds })
  const run = async (command: string): Promise<Medians> => {
    const child = Bun.spawn([command, clientName], {
      cwd: folder,
      stdin: Buffer.from(input),
      stdout: 'pipe',
      stderr: 'pipe',
      timeout: clientTimeoutMs,
    })
    const [output, errors] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
    if (child.exitCode !== 0) throw new Error(`${command} ${clientName}: exit status ${child.exitCode}: ${errors}`)
    return JSON.parse(output)
  }
  const inBun = await run(process.execPath)
  const inNode = Bun.which('node') === null ? null : await run('node')
  return { ...figuresOf('package', inBun), ...(inNode === null ? {} : figuresOf('packageNode', inNode)) }
}

/** The aim is 1.4 times the pinned connection's time, on whatever machine: 2.5 ms where that takes 1.8. */
function figuresOf<Name extends string>(name: Name, { sealed, pinned, plain }: Medians): Figures {
  const ms = (value: number) => ({ value: Math.round(value * 1000) / 1000, unit: 'ms' }) as const
  return {
    [`${name}RequestMs`]: { ...ms(sealed), aim: { atMost: 2.5 }, baseline: `${name}PinnedRequestMs` },
    [`${name}PinnedRequestMs`]: { ...ms(pinned), aim: null, baseline: `${name}PlainRequestMs` },
    [`${name}PlainRequestMs`]: { ...ms(plain), aim: null },
  }
}
