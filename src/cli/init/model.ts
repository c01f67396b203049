// The model of a new host: a GGUF file for the gateway's VM, or an own model server, as `strongroom init` prompts for
// it. Effects: the terminal, requests to the server, the disk of a model.

import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { Fault, messageOf } from '../../base/fault.ts'
import { servedModels } from '../../config/checks/worker.ts'
import type { Setting } from '../../config/edit.ts'
import { ConfigFault } from '../../config/load.ts'
import type { Config } from '../../config/schema.ts'
import { addModelFile } from '../operator/model.ts'
import type { Run } from '../operator-run.ts'
import { withUpstream } from '../upstream/entry.ts'
import { priceOf, triedUpstream } from '../upstream/trial.ts'
import { askLine } from './ask.ts'
import { type Candidate, candidateOf } from './candidate.ts'
import type { KeptAnswers } from './kept-answers.driver.ts'

const answerName = 'model'
const attemptsMax = 3
const mib = 1_048_576
/** Memory of the gateway's VM beside the model's file: the context of one request at a time, and the gateway. */
const besideModelMib = 3072

/** Reports whether the gateway is on and has no model yet. */
export function lacksModel(config: Config): boolean {
  const { listen, instances } = config
  return listen.inference !== '' && instances.inference_base_url === '' && servedModels(config).size === 0
}

/**
 * Prompts for a model, tries it, and returns the configuration with it; the same one for no model. After three wrong
 * answers it continues without a model.
 */
export async function withAskedModel(run: Run, candidate: Candidate, file: string, kept: KeptAnswers) {
  const shown = kept.get(answerName) ?? ''
  const prompt = `Model: path of a GGUF file, URL of your own model server (…/v1), or "" for none [${shown || '""'}]: `
  for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
    const typed = (await askLine(run, prompt)).trim()
    const answer = typed === '' ? shown : typed === '""' ? '' : typed
    if (answer === '') return candidate
    try {
      const next = /^https?:\/\//.test(answer)
        ? await withServer(run, candidate, { url: answer, file })
        : await withFile(run, candidate, { path: answer, file })
      kept.set(answerName, answer)
      return next
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      const remedy: unknown = Reflect.get(error, 'remedy')
      await run.io.stderr(`  ${messageOf(error)}\n${typeof remedy === 'string' ? `  remedy: ${remedy}\n` : ''}`)
    }
  }
  await run.hint('no model for now: `strongroom upstream add URL` and `strongroom help gateway` add one later')
  return candidate
}

async function withServer(run: Run, candidate: Candidate, { url, file }: { url: string; file: string }) {
  const { config } = candidate
  const tried = await triedUpstream(run, config, url, {})
  const price = await priceOf(run, { config, file }, tried.model, {})
  const verdict = withUpstream({ text: candidate.text, config, file }, { ...tried, price })
  if (!verdict.ok) throw new ConfigFault(verdict.problems)
  return { ...candidate, ...verdict, changes: [...candidate.changes, ...verdict.changes] }
}

async function withFile(run: Run, candidate: Candidate, { path, file }: { path: string; file: string }) {
  const { model } = await addModelFile(run, resolve(path), {})
  const sizeMib = Math.ceil(statSync(resolve(path)).size / mib)
  const { memory_mib: memoryMib } = candidate.config.inference
  const settings: Setting[] = [
    { path: ['inference', 'worker', 'model_disk'], value: model.name },
    { path: ['inference', 'worker', 'model'], value: model.name },
    // One request at a time, so that its context fits; strongroom help gateway has the formula.
    { path: ['inference', 'worker', 'parallel'], value: 1 },
    { path: ['inference', 'memory_mib'], value: Math.max(memoryMib, sizeMib + besideModelMib) },
    { path: ['instances', 'inference_models'], value: [model.name] },
  ]
  const verdict = candidateOf(candidate.text, settings, file)
  if (!verdict.ok) throw new ConfigFault(verdict.problems)
  return { ...verdict, changes: [...candidate.changes, ...verdict.changes] }
}
