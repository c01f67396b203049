import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { connect } from 'node:net'
import { toBase64Url } from '../../../src/base/bytes.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { serveTpm } from '../../../src/guest/tpm/socket.ts'
import type { Tpm } from '../../../src/guest/tpm/tpm.ts'

/** The reply to these pieces, sent one after the other. */
async function asked(path: string, ...pieces: readonly (string | Uint8Array)[]): Promise<unknown> {
  const socket = connect(path)
  const timer = setTimeout(() => socket.destroy(new Error('no answer')), 10_000)
  try {
    for (const piece of pieces) {
      socket.write(piece)
      await Bun.sleep(5)
    }
    let text = ''
    for await (const chunk of socket) {
      text += String(chunk)
      if (text.endsWith('\n')) return JSON.parse(text)
    }
    throw new Error('closed')
  } finally {
    clearTimeout(timer)
    socket.destroy()
  }
}

// Goal: everybody in the VM may ask, with exactly 32 bytes; other requests cost the TPM nothing, and nobody gets 64
// bytes quoted.
test('quotes over 32 bytes and nothing else', async () => {
  const dir = mkdtempSync('/tmp/tpm-socket-')
  const path = `${dir}/tpm.sock`
  const nonces: Uint8Array[] = []
  const credentials: Uint8Array[] = []
  const tpm: Tpm = {
    evidence: async nonce => {
      nonces.push(nonce)
      if (nonce[0] === 1) return { kind: 'none' }
      if (nonce[0] === 2) return { kind: 'failed', reason: 'x'.repeat(5_000) }
      return { kind: 'evidence', bytes: Uint8Array.of(1, 2, 3) }
    },
    endorsementKey: async () => ({ kind: 'endorsement-key', area: Uint8Array.of(4, 5, 6) }),
    activate: async credential => {
      credentials.push(credential)
      return credential[0] === 1
        ? { kind: 'failed', reason: 'y'.repeat(5_000) }
        : { kind: 'activated', proof: Uint8Array.of(7, 8, 9) }
    },
  }
  try {
    using _served = serveTpm({ path, tpm, log: silentLogger })
    expect(statSync(path).mode & 0o777).toBe(0o666)
    const of = (first: number, length = 32) => toBase64Url(new Uint8Array(length).fill(first))
    expect(await asked(path, `${of(7)}\n`)).toEqual({ kind: 'evidence', evidence: 'AQID' })
    expect(await asked(path, of(7).slice(0, 20), of(7).slice(20), '\n')).toEqual({ kind: 'evidence', evidence: 'AQID' })
    expect(await asked(path, `${of(1)}\n`)).toEqual({ kind: 'none' })
    expect(await asked(path, `${of(2)}\n`)).toEqual({ kind: 'failed', reason: 'x'.repeat(1_024) })
    const before = nonces.length
    const refusal = { kind: 'failed', reason: 'ask with 32 bytes in base64url, and LF' }
    for (const bad of [`${of(7, 64)}\n`, `${'='.repeat(43)}\n`, new Uint8Array(100_000).fill(0xff), `${of(7)} more\n`])
      expect(await asked(path, bad)).toEqual(refusal)
    expect(nonces.slice(before)).toEqual([])

    const activate = (first: number, length = 328) => `activate ${of(first, length)}\n`
    expect(await asked(path, 'ek\n')).toEqual({ kind: 'endorsement-key', area: 'BAUG' })
    expect(await asked(path, activate(7).slice(0, 60), activate(7).slice(60))).toEqual({
      kind: 'activated',
      proof: 'BwgJ',
    })
    expect(await asked(path, activate(1))).toEqual({ kind: 'failed', reason: 'y'.repeat(1_024) })
    expect(credentials.map(credential => credential.length)).toEqual([328, 328])
    for (const bad of [
      ...[activate(7, 327), activate(7, 329), activate(7, 0), activate(7, 50_000), 'activate \n', 'EK\n', '\n'],
      ...[`activate  ${of(7, 328)}\n`, `${activate(7).trimEnd()} \n`],
    ])
      expect(await asked(path, bad)).toEqual(refusal)
    expect([credentials.length, nonces.slice(before)]).toEqual([2, []])
    // One connection, one request.
    expect(await asked(path, `ek\n${activate(7)}`)).toEqual({ kind: 'endorsement-key', area: 'BAUG' })
    expect(credentials.length).toBe(2)
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
})
