// Runs a model once in the built-in worker's sandbox and records a known answer. Effects: a folder in /tmp, processes.

import { chmodSync, mkdtempSync } from 'node:fs'
import { join } from 'node:path'
import { onAbort, systemClock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { silentLogger } from '../../base/log.ts'
import type { Config } from '../../config/schema.ts'
import type { GoldenAnswer } from '../../contract/vm/workload.ts'
import { startSandboxed } from '../../host/sandbox.ts'
import { lookupUser } from '../../host/system.ts'
import { goldenTokensMin, recordGolden } from '../../inference/worker/golden-record.ts'
import { createWorkerRoot } from '../../inference/worker/root.ts'
import { BuiltInWorker, workerTiming } from '../../inference/worker/worker.ts'
import { removeForeignTree } from '../../linux/tree.ts'
import { AdvisedFault } from '../../terminal/exit.ts'

type WorkerConfig = Config['inference']['worker']

const unpackTimeoutMs = 60_000
const removeTimeoutMs = 60_000
/** Context, in tokens: prompts and answers have a few words. */
const contextTokens = 1024

export type Recording = { readonly file: string; readonly settings: WorkerConfig; readonly signal: AbortSignal }

/** Rejects on abort. AdvisedFault host.command_failed: the model cannot run here, or its answer varies. */
export async function recordOnHost({ file, settings, signal }: Recording): Promise<GoldenAnswer> {
  let found: GoldenAnswer | null
  try {
    found = await runOnce({ ...settings, model_file: file, context_tokens: contextTokens, parallel: 1 }, signal)
  } catch (error) {
    signal.throwIfAborted()
    throw cannot(messageOf(error))
  }
  if (found === null) throw cannot(`to none of our prompts it begins with ${goldenTokensMin} tokens that are sure`)
  return found
}

function cannot(why: string): AdvisedFault {
  return new AdvisedFault('host.command_failed', `no golden answer could be recorded: ${why}`, {
    remedy: 'make it run here, or give --golden-prompt TEXT with --golden-answer TEXT, or --golden none',
  })
}

async function runOnce(settings: WorkerConfig, signal: AbortSignal): Promise<GoldenAnswer | null> {
  await using undo = new AsyncDisposableStack()
  // Not in the state directory: the worker's user must reach it, before the daemon's first start, too.
  const directory = mkdtempSync('/tmp/strongroom-golden-')
  undo.defer(() => removeForeignTree(directory, removeTimeoutMs))
  chmodSync(directory, 0o711)
  const target = join(directory, 'root/root')
  const worker = new BuiltInWorker({
    removeTree: removeForeignTree,
    settings,
    stateDir: directory,
    startSandboxed,
    root: createWorkerRoot({ imageDir: settings.image_dir, target, timeoutMs: unpackTimeoutMs }),
    user: () => lookupUser(settings.user),
    openModel: async () => null,
    admit: () => ({ ok: true }),
    onReady: () => {},
    clock: systemClock,
    log: silentLogger,
    timing: workerTiming,
  })
  undo.defer(() => worker.stop())
  const cancel = onAbort(signal, () => void worker.stop())
  undo.defer(cancel)
  worker.start()
  const state = await worker.settled
  signal.throwIfAborted()
  if (state.kind === 'failed' || state.kind === 'refused') throw new Error(state.message)
  return await recordGolden({ socket: worker.upstream.unix, timeoutMs: settings.start_timeout_ms, signal })
}
