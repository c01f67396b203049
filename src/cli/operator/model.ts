// strongroom model: model disks of a gateway in a VM, in the state directory. Effects: files; runs a model once.

import { Option } from 'commander'
import { systemClock } from '../../base/clock.ts'
import { Fault, systemErrorCode } from '../../base/fault.ts'
import type { Config } from '../../config/schema.ts'
import type { GoldenAnswer } from '../../contract/vm/workload.ts'
import { modelDiskBytes } from '../../host/models/disk.ts'
import {
  type AddedModel,
  addModel,
  type ListedModel,
  listModels,
  mayBeModelOf,
  modelDiskPath,
  modelNameOf,
  removeModel,
} from '../../host/models/models.ts'
import { processesWithOpen } from '../../linux/open-files.ts'
import { AdvisedFault, InputFault } from '../../terminal/exit.ts'
import { createProgress, type Progress } from '../../terminal/progress.ts'
import { bytesText, fields, oneLine, type Paint, table } from '../../terminal/render.ts'
import type { Command, Run } from '../operator-run.ts'
import { recordOnHost } from './model-golden.driver.ts'

type AddOptions = {
  name?: string
  nameByDigest?: boolean
  goldenPrompt?: string
  goldenAnswer?: string
  golden?: 'none'
}

export function addModels(program: Command): void {
  const model = program
    .command('model')
    .description('model disks of the gateway VM: add, list, remove; needs no daemon')
    .examples('strongroom model add llama.gguf', 'strongroom model list')

  model
    .command('add')
    .description(
      'make the read-only disk of a GGUF file; its root hash is the same on every host. No effect if the disk exists. Unless a golden option is given, runs the model once and stores a confident answer; a worker that answers differently does not serve',
    )
    .argument('<file>', 'GGUF file; a gateway in a VM does not need it afterwards')
    .option('--name <name>', 'name of the model on this host; default: the name of the file')
    .addOption(new Option('--name-by-digest', 'name it after the SHA-256 of the file').conflicts('name'))
    .option('--golden-prompt <text>', 'prompt of the golden answer; requires --golden-answer')
    .option('--golden-answer <text>', 'start of the completion at temperature 0, with white space')
    .addOption(
      new Option('--golden <none>', 'none: do not check the answers of the model')
        .choices(['none'])
        .conflicts(['goldenPrompt', 'goldenAnswer']),
    )
    .examples(
      'strongroom model add llama.gguf',
      'strongroom model add llama.gguf --name llama --golden-prompt "2 + 2 =" --golden-answer " 4"',
      'strongroom model add llama.gguf --golden none --json',
    )
    .runs(add)

  model
    .command('list')
    .description('list the model disks and what uses them')
    .examples('strongroom model list', 'strongroom model list --json')
    .runs(async run => {
      const { config } = await run.config()
      const models = asRoot(() => listModels(run.stateDir)).map(model => ({
        one: model,
        configured: isConfigured(config, run.stateDir, model.name),
        pids: processesWithOpen(modelDiskPath(run.stateDir, model.name)),
      }))
      await run.result({ models: models.map(listedDocument) }, listText(models, run.paint))
    })

  model
    .command('remove')
    .description('remove the disk of a model that neither the configuration nor a running VM uses')
    .argument('<name>', 'name of the model')
    .examples('strongroom model remove llama')
    .runs(remove)
}

async function add(run: Run, file: string, options: AddOptions): Promise<void> {
  const added = await addModelFile(run, file, options)
  await run.result(addedDocument(added), addedText(added, run.paint))
  if (!added.made) await run.hint('It was there.')
  await run.hint(`To serve it in a VM: inference.worker.model_disk = "${added.model.name}"`)
}

/** Makes the disk of a model, with progress. Faults: invalid_request, conflict, host.*. */
export async function addModelFile(run: Run, file: string, options: AddOptions): Promise<AddedModel> {
  const golden = goldenOf(options)
  const stopping = new AbortController()
  const stopped = new AdvisedFault('host.command_failed', 'stopped; nothing was added', { remedy: 'run it again' })
  const stop = () => stopping.abort(stopped)
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) run.io.onSignal(signal, stop)
  const { io, paint } = run
  const progress = createProgress({ io, paint, isQuiet: run.json, monotonicMs: systemClock.monotonicMs })
  const record = async () => {
    await progress.phase('golden', 'running the model once')
    return await recordOnHost({ file, settings: (await run.config()).config.inference.worker, signal: stopping.signal })
  }
  try {
    return await addModel(
      {
        stateDir: run.stateDir,
        file,
        name: options.nameByDigest === true ? null : (options.name ?? modelNameOf(file)),
        golden: golden === 'record' ? record : async () => golden,
        replacesGolden: golden !== 'record',
      },
      { onProgress: showBytes(progress, io.stderrIsTerminal), signal: stopping.signal, nowMs: systemClock.nowMs },
    )
  } catch (error) {
    throw advised(error)
  } finally {
    await progress.stop()
  }
}

/** The options' answer, null for none, or that it is to be recorded. */
function goldenOf({
  golden,
  goldenPrompt: prompt,
  goldenAnswer: expected,
}: AddOptions): GoldenAnswer | null | 'record' {
  if (golden === 'none') return null
  if (prompt === undefined && expected === undefined) return 'record'
  for (const [param, text, charsMax] of [
    ['golden-prompt', prompt, 4096],
    ['golden-answer', expected, 1024],
  ] as const) {
    if (text !== undefined && text !== '' && text.length <= charsMax) continue
    throw new InputFault(`--${param} must have 1 to ${charsMax} characters`, {
      param,
      remedy: 'give --golden-prompt and --golden-answer together',
    })
  }
  const text = expected ?? ''
  return { prompt: prompt ?? '', maxTokens: Math.min(256, Math.max(16, Buffer.byteLength(text))), expected: text }
}

/** On a terminal as it goes, elsewhere a line for every tenth. */
function showBytes(progress: Progress, isTerminal: boolean) {
  let shown = -1
  return ({ bytes, totalBytes }: { bytes: number; totalBytes: number }) => {
    const step = Math.floor((bytes / totalBytes) * (isTerminal ? 1000 : 10))
    if (step === shown) return
    shown = step
    void progress.phase('reading', `${bytesText(bytes)} of ${bytesText(totalBytes)}`)
  }
}

/** The error with a remedy for this command; that of base/fault.ts is for others who meet the same failure. */
function advised(error: unknown): unknown {
  if (!(error instanceof Fault) || error instanceof AdvisedFault) return error
  if (isForbidden(error)) return new InputFault(error.message, { remedy: 'run the command as root', cause: error })
  if (error.code !== 'conflict' || error.param !== 'name') return error
  const remedy = 'give another --name, or remove the one that is there: strongroom model remove NAME'
  return new AdvisedFault('conflict', error.message, { param: 'name', remedy, cause: error })
}

function isForbidden(error: Fault): boolean {
  return ['EACCES', 'EPERM'].includes(systemErrorCode(error.cause) ?? '')
}

function asRoot<T>(work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw advised(error)
  }
}

/** Named by the configuration, or made of the file that it names. */
function isConfigured({ inference: { worker } }: Config, stateDir: string, name: string): boolean {
  if (worker.model_disk !== '') return worker.model_disk === name
  return worker.model_file !== '' && mayBeModelOf(stateDir, worker.model_file, name)
}

async function remove(run: Run, name: string): Promise<void> {
  const refuse = (why: string, remedy: string) => {
    throw new AdvisedFault('conflict', `model ${name} ${why}`, { param: 'name', remedy })
  }
  if (isConfigured((await run.config()).config, run.stateDir, name)) {
    refuse('is what the configuration serves', 'change inference.worker.model_disk and model_file first')
  }
  const listed = asRoot(() => listModels(run.stateDir)).some(model => model.name === name)
  const pids = listed ? processesWithOpen(modelDiskPath(run.stateDir, name)) : []
  if (pids.length > 0) refuse(`is in use by process ${pids.join(', ')}`, 'wait until the VM that has it is gone')
  asRoot(() => removeModel(run.stateDir, name))
  await run.result({ name, removed: true }, `removed ${name}\n`)
}

type Model = AddedModel['model']

function modelDocument(disk: string, { golden, ...model }: Model) {
  return {
    name: model.name,
    disk,
    disk_bytes: modelDiskBytes(model.fileBytes),
    root_hash: model.rootHash,
    hash_offset: model.hashOffset,
    file_sha256: model.fileSha256,
    file_bytes: model.fileBytes,
    golden: golden === null ? null : { prompt: golden.prompt, max_tokens: golden.maxTokens, expected: golden.expected },
  }
}

function addedDocument({ disk, model, made }: AddedModel) {
  return { ...modelDocument(disk, model), made }
}

function addedText({ disk, model }: AddedModel, paint: Paint): string {
  const { golden } = model
  return fields(paint, [
    ['name', model.name],
    ['root hash', model.rootHash],
    ['hash offset', String(model.hashOffset)],
    ['file', `${bytesText(model.fileBytes)}, SHA-256 ${model.fileSha256}`],
    ['disk', disk],
    [
      'golden',
      golden === null ? 'none' : oneLine(`${JSON.stringify(golden.prompt)} → ${JSON.stringify(golden.expected)}`),
    ],
  ])
}

type ListedModelRow = { readonly one: ListedModel; readonly configured: boolean; readonly pids: readonly number[] }

function listedDocument({ one: item, configured, pids }: ListedModelRow) {
  const use = { configured, open_by: pids }
  if (item.kind === 'broken') return { name: item.name, problem: item.problem, ...use }
  return { ...modelDocument(item.disk, item.model), problem: null, ...use }
}

function listText(models: readonly ListedModelRow[], paint: Paint): string {
  const rows = models.map(({ one: item, configured, pids }) => {
    const users = [...(configured ? ['configuration'] : []), ...pids.map(pid => `process ${pid}`)].join(', ')
    if (item.kind === 'broken') return [item.name, '-', `${paint.bad('broken')}: ${oneLine(item.problem)}`, '-', users]
    const { fileBytes, rootHash, golden } = item.model
    return [item.name, bytesText(fileBytes), rootHash, golden === null ? 'no' : 'yes', users === '' ? '-' : users]
  })
  return table(paint, ['NAME', 'SIZE', 'ROOT HASH', 'GOLDEN', 'IN USE BY'], rows)
}
