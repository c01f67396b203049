// A host of an agent port that is only a socket, so that the test decides every byte that it says. Effects: a
// connection.

import { connect, type Socket } from 'node:net'

export type RawChannel = Disposable & {
  /** Resolves when the kernel has taken it. */
  readonly write: (bytes: string | Uint8Array) => Promise<void>
  /** Whole lines that came, as objects. */
  readonly said: { readonly id: string; readonly ok: boolean; readonly message?: string }[]
}

export async function openRawChannel(path: string): Promise<RawChannel> {
  const said: RawChannel['said'] = []
  const socket = await new Promise<Socket>((resolve, reject) => {
    const opened = connect(path, () => resolve(opened))
    opened.once('error', reject)
  })
  socket.on('error', () => {})
  let rest = ''
  socket.on('data', bytes => {
    const lines = (rest + bytes.toString()).split('\n')
    rest = lines.pop() ?? ''
    said.push(...lines.filter(Boolean).map(line => JSON.parse(line)))
  })
  return {
    write: bytes => new Promise(resolve => socket.write(bytes, () => resolve())),
    said,
    [Symbol.dispose]: () => socket.destroy(),
  }
}
