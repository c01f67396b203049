// Snapshots of the owner's files: a program of the image packs, encrypts and sends them (usr/lib/strongroom/snapshot),
// and what it sent is signed here. Effects: that program, ssh-keygen, a record in /run.
//
// The host gets ciphertext alone. The SSH host key signs, because relying parties have verified it and keep it.

import { messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { matches } from '../../contract/check.ts'
import { Closed, Sha256 } from '../../contract/forms.ts'
import { SnapshotNumber, snapshotFormat, snapshotNamespace, snapshotText } from '../../contract/snapshot.ts'
import { type Static, Type } from '../../contract/type.ts'
import type { Transfer } from '../../contract/vm/agent.ts'
import type { run } from '../../linux/command.ts'
import { type Owner, readTextOrNull, writeFileAtomic } from '../../linux/files.ts'
import type { ClaimRecord } from '../claim-record.ts'
import type { GuestPaths } from '../paths.ts'
import { rootHashIn } from '../program.ts'
import { jsonOf, ok, refuse } from '../wire.codec.ts'

export type Snapshots = ReturnType<typeof createSnapshots>

type SnapshotDeps = {
  readonly paths: Pick<GuestPaths, 'commandLine' | 'snapshotRecord' | 'sshHostKey'>
  readonly owner: Owner
  readonly argv: readonly string[]
  readonly run: typeof run
  readonly log: Logger
}

/** The last finished one of this boot. `files`: their digest. */
const Last = Closed({ number: SnapshotNumber, sha256: Sha256, files: Sha256 })
type Last = Static<typeof Last>
/** Digests of the ciphertext, of its header, and of names and times of change of the files. */
const Sent = Type.Tuple([Sha256, Sha256, Sha256])

const transferMs = 2 * 60 * 60 * 1_000
const signMs = 30_000
const outputBytesMax = 16_384
/** Fetches under way; one whose session has gone ends with its time. */
const fetchesMax = 4

export function createSnapshots({ paths, owner, argv, run, log }: SnapshotDeps) {
  let isSending = false
  let fetches = 0

  const transfer = (words: readonly string[], { document }: ClaimRecord, { port, token }: Transfer) => {
    const nextHop = document.network?.gateway ?? document.network?.v6?.gateway ?? ''
    // The token is no argument: every program of the VM may read those.
    return run([...argv, ...words, nextHop, String(port)], {
      stdin: `${token}\n`,
      timeoutMs: transferMs,
      outputBytesMax,
    })
  }

  const send = async (to: Transfer, claim: ClaimRecord, ifChanged?: string) => {
    const last = jsonOf(readTextOrNull(paths.snapshotRecord) ?? 'null')
    const before = matches(Last, last) ? last : null
    const known = before?.sha256 === ifChanged ? before : null
    const printed = (await transfer(['send', known?.files ?? 'any'], claim, to)).stdout.trim()
    if (printed === 'unchanged') return refuse('unchanged', 'snapshot: no file has changed since the last one')
    const sent: unknown = printed.split(' ')
    if (!matches(Sent, sent)) return refuse('failed', 'snapshot: the program that packs has printed no digests')
    const [sha256, ageHeader, files] = sent
    const { hostname } = claim
    const number = (before?.number ?? 0) + 1
    const facts = { hostname, number, previous: before?.sha256 ?? null, rootHash: rootHashIn(paths), ageHeader, sha256 }
    const header = snapshotText({ format: snapshotFormat, ...facts })
    // First, so that no two signatures are over one number.
    const next: Last = { number, sha256, files }
    writeFileAtomic(paths.snapshotRecord, JSON.stringify(next), { mode: 0o600, owner })
    const signing = ['ssh-keygen', '-q', '-Y', 'sign', '-f', paths.sshHostKey, '-n', snapshotNamespace]
    const { stdout: signature } = await run(signing, { stdin: header, timeoutMs: signMs, outputBytesMax })
    return { ok: true, snapshot: { header, signature } } as const
  }

  return {
    /**
     * Resolves when the whole ciphertext is sent and signed. One at a time. `ifChanged`: refused as `unchanged` if this
     * is the SHA-256 of the last one, and the files are those of it. Throws Fault host.command_*.
     */
    send: async (to: Transfer, claim: ClaimRecord | null, ifChanged?: string) => {
      if (claim === null) return refuse('unclaimed', 'snapshot: there is no claim yet')
      if (isSending) return refuse('failed', 'snapshot: another one is under way')
      isSending = true
      try {
        return await send(to, claim, ifChanged)
      } finally {
        isSending = false
      }
    },
    /** Begins to fetch; the owner's session reads the pipe. */
    fetch: (from: Transfer, pipe: string, claim: ClaimRecord | null) => {
      if (claim === null) return refuse('unclaimed', 'restore: there is no claim yet')
      if (fetches >= fetchesMax) return refuse('failed', `restore: ${fetchesMax} are under way; end them, or wait`)
      fetches += 1
      // A failure ends the pipe early, so the owner's session fails, too.
      transfer(['fetch', pipe], claim, from)
        .catch(error => log.warn('a snapshot was not fetched whole', { reason: messageOf(error) }))
        .finally(() => {
          fetches -= 1
        })
      return ok
    },
  }
}
