// Models' disks on this host: `models/NAME/` in the state directory holds the disk and its entry for workload.json.
// Effects: files.
//
// A disk appears under its name in one rename, complete and synced. A crash may leave `.adding` and `.removing`; the
// next change removes them. Making a disk reads a whole model, so only a separate process does that, never the daemon
// (ensure.ts).

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync } from 'node:fs'
import { type FileHandle, open, constants as openFlags } from 'node:fs/promises'
import { basename, resolve } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { canonicalJson } from '../../base/canonical-json.ts'
import { Fault, messageOf, systemErrorCode, wrapFault } from '../../base/fault.ts'
import { resultOr } from '../../base/result-or.ts'
import { checkedJson } from '../../contract/check.ts'
import { Closed, OrNull } from '../../contract/forms.ts'
import { type GoldenAnswer, WorkloadModel } from '../../contract/vm/workload.ts'
import { diskSpace } from '../../linux/files/disk-space.ts'
import { removeTree } from '../../linux/files/removal.ts'
import { ensureDir, fileIdentity, readTextOrNull, syncDirectory, writeFileAtomic } from '../../linux/files.ts'
import { type FileLock, lockFile } from '../../linux/lock.ts'
import { type ModelDiskFacts, modelDiskBytes, type Progress, writeModelDisk } from './disk.ts'
import { modelBytesMax } from './erofs.ts'
import { hashOffsetOf } from './extent.ts'
import { ggufHeaderBytes, ggufPart, ggufProblem } from './gguf.ts'

export type StoredModel = {
  /** The disk's file on this host, accessible only to root. */
  readonly disk: string
  readonly model: WorkloadModel
}

export type ListedModel =
  | (StoredModel & { readonly kind: 'whole'; readonly name: string; readonly diskBytes: number })
  | { readonly kind: 'broken'; readonly name: string; readonly problem: string }

const modelNamePattern = new RegExp(WorkloadModel.properties.name.pattern ?? '')

export function isModelName(name: string): boolean {
  return modelNamePattern.test(name)
}

const diskFileName = 'model.erofs'
const factsFileName = 'model.json'
const sourceFileName = 'source.json'

/** The file that a disk was made from. While its identity is unchanged, it need not be read again. */
const Source = Closed({ path: Type.String(), identity: OrNull(Type.String()) })
type Source = Static<typeof Source>

function pathsOf(stateDir: string) {
  const directory = `${stateDir}/models`
  return {
    directory,
    lock: `${directory}/.lock`,
    adding: `${directory}/.adding`,
    removing: `${directory}/.removing`,
    of: (name: string) => `${directory}/${name}`,
  }
}

/** Loads a disk. Throws Fault config.file if there is no such disk, or it is incomplete. */
export function loadModel(stateDir: string, name: string): StoredModel {
  const what = `model ${name}`
  const fault = (problem: string) =>
    new Fault('config.file', `${what}: ${problem}`, { param: 'inference.worker.model_disk' })
  if (!isModelName(name)) throw fault('that is no name of a model')
  const directory = pathsOf(stateDir).of(name)
  const text = readTextOrNull(`${directory}/${factsFileName}`)
  if (text === null) throw fault(`there is none; make its disk: strongroom model add FILE.gguf --name ${name}`)
  const model = checkedJson(WorkloadModel, Buffer.from(text), {
    what: `${directory}/${factsFileName}`,
    code: 'config.file',
  })
  const disk = `${directory}/${diskFileName}`
  const again = `; remove it and add it again: strongroom model remove ${name}`
  if (model.name !== name || model.hashOffset !== hashOffsetOf(model.fileBytes)) {
    throw fault(`${factsFileName} is not that of this disk${again}`)
  }
  const sizeBytes = statSync(disk, { throwIfNoEntry: false })?.size ?? null
  if (sizeBytes !== modelDiskBytes(model.fileBytes)) {
    throw fault(`${disk} has ${sizeBytes ?? 'no'} bytes, not ${modelDiskBytes(model.fileBytes)}${again}`)
  }
  return { disk, model }
}

/** Lists the disks in the order of their names. Faults: internal. */
export function listModels(stateDir: string): ListedModel[] {
  const { directory } = pathsOf(stateDir)
  if (!existsSync(directory)) return []
  const names = readNames(directory).filter(isModelName).toSorted()
  return names.map(name => {
    try {
      const stored = loadModel(stateDir, name)
      return { kind: 'whole', name, ...stored, diskBytes: modelDiskBytes(stored.model.fileBytes) }
    } catch (error) {
      return { kind: 'broken', name, problem: messageOf(error) }
    }
  })
}

function readNames(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch (error) {
    throw wrapFault(error, `read ${directory}`)
  }
}

/** Returns the disk that was made from this file, unchanged since; null if there is none. */
export function findModelOf(stateDir: string, file: string): StoredModel | null {
  const status = statSync(file, { bigint: true, throwIfNoEntry: false })
  return status === undefined ? null : findByIdentity(stateDir, fileIdentity(status))
}

/**
 * Like `findModelOf`, but also matches a disk of this path whose file was too new to distinguish it from its next
 * version.
 */
export function mayBeModelOf(stateDir: string, file: string, name: string): boolean {
  const source = readSource(pathsOf(stateDir).of(name))
  if (source?.identity === null && resolve(source.path) === resolve(file)) return true
  return findModelOf(stateDir, file)?.model.name === name
}

function findByIdentity(stateDir: string, identity: string): StoredModel | null {
  const isSame = (name: string) => readSource(pathsOf(stateDir).of(name))?.identity === identity
  return wholeModels(stateDir).find(({ model }) => isSame(model.name)) ?? null
}

function wholeModels(stateDir: string): StoredModel[] {
  return listModels(stateDir).flatMap(kept => (kept.kind === 'whole' ? [{ disk: kept.disk, model: kept.model }] : []))
}

/** Reads the source. Null if it cannot be read: then the model file is read instead. */
function readSource(directory: string): Source | null {
  const read = () => readFileSync(`${directory}/${sourceFileName}`)
  return resultOr(() => checkedJson(Source, read(), { what: sourceFileName, code: 'internal' }), null)
}

export type NewModel = {
  readonly stateDir: string
  readonly file: string
  /** Null to name it after the digest of its bytes, unless a disk of the same bytes exists under any name. */
  readonly name: string | null
  /** Called only for a disk that does not exist yet, unless `replacesGolden`. */
  readonly golden: () => Promise<GoldenAnswer | null>
  readonly replacesGolden: boolean
}

export type AddedModel = StoredModel & { readonly made: boolean }

export type AddDeps = {
  readonly onProgress: Progress
  readonly signal: AbortSignal
  readonly nowMs: () => number
}

/**
 * Makes the disk of a GGUF file, or finds it. Rejects if the signal is aborted. Faults: invalid_request (the file or
 * the name), conflict (the name belongs to another file; the file changes; another process adds one), host.disk_full,
 * internal.
 */
export async function addModel(added: NewModel, deps: AddDeps): Promise<AddedModel> {
  const { stateDir, name } = added
  if (name !== null && !isModelName(name)) {
    const allowed = '1 to 63 lowercase letters, digits, dots, hyphens and underscores, a letter or digit first'
    throw new Fault('invalid_request', `model name ${JSON.stringify(name)}: allowed are ${allowed}`, { param: 'name' })
  }
  await using source = await openSource(added.file, deps.nowMs())
  using _lock = lockModels(stateDir)
  const there = await findThere(added, source, deps)
  const found = there ?? (await makeModel(added, source, deps))
  if (!found.made && added.replacesGolden) return { ...found, ...(await replaceGolden(found, added.golden)) }
  return found
}

/** Locks the models against other changes, and removes remains of a crash. Faults: conflict, internal. */
function lockModels(stateDir: string): FileLock {
  const { directory, lock, adding, removing } = pathsOf(stateDir)
  ensureDir(directory, { mode: 0o700 })
  const held = lockFile(lock)
  try {
    for (const left of [adding, removing]) removeTree(left)
    return held
  } catch (error) {
    held.release()
    throw error
  }
}

type OpenSource = AsyncDisposable & {
  readonly handle: FileHandle
  readonly path: string
  readonly sizeBytes: number
  /** Null if its last change was so recent that another one could look the same. */
  readonly identity: string | null
  /** Throws Fault conflict if the file has changed. */
  readonly checkUnchanged: () => Promise<void>
}

/** The clock of a file system ticks every few milliseconds, and that of a network may be behind. */
export const settledAfterMs = 2_000

/** Opens the file. Faults: invalid_request. */
async function openSource(path: string, nowMs: number): Promise<OpenSource> {
  const refuse = (problem: string) => new Fault('invalid_request', `${path}: ${problem}`, { param: 'file' })
  let handle: FileHandle
  try {
    // Does not block on a FIFO.
    handle = await open(path, openFlags.O_RDONLY | openFlags.O_NONBLOCK)
  } catch (error) {
    throw refuse(systemErrorCode(error) === 'ENOENT' ? 'there is no such file' : messageOf(error))
  }
  try {
    const status = await handle.stat({ bigint: true })
    if (!status.isFile()) throw refuse('it is not a regular file')
    const sizeBytes = Number(status.size)
    if (sizeBytes > modelBytesMax) throw refuse(`${sizeBytes} bytes; a model has at most ${modelBytesMax}`)
    const head = new Uint8Array(ggufHeaderBytes)
    const { bytesRead } = await handle.read(head, 0, head.length, 0)
    const problem = ggufProblem(head.subarray(0, bytesRead), sizeBytes)
    if (problem !== null) throw refuse(problem)
    const part = ggufPart(basename(path))
    if (part !== null) {
      throw refuse(`part ${part.part} of ${part.of} of a model; join them first: llama-gguf-split --merge FIRST OUT`)
    }
    const identity = fileIdentity(status)
    return {
      handle,
      path,
      sizeBytes,
      identity: nowMs - Number(status.ctimeMs) >= settledAfterMs ? identity : null,
      checkUnchanged: async () => {
        const now = fileIdentity(await handle.stat({ bigint: true }))
        if (now !== identity) throw new Fault('conflict', `${path} changed while it was read; add it again`)
      },
      [Symbol.asyncDispose]: () => handle.close(),
    }
  } catch (error) {
    await handle.close()
    throw error
  }
}

/**
 * Finds an existing disk. Null if there is none with that name or, if no name is given, with these bytes. Throws Fault
 * conflict.
 */
async function findThere(added: NewModel, source: OpenSource, deps: AddDeps): Promise<AddedModel | null> {
  const { stateDir, name } = added
  const { identity } = source
  if (name === null) {
    const same = identity === null ? null : findByIdentity(stateDir, identity)
    const found = same ?? (await findByDigest(stateDir, source, deps))
    return found === null ? null : { ...found, made: false }
  }
  const directory = pathsOf(stateDir).of(name)
  if (!existsSync(directory)) return null
  const there = loadModel(stateDir, name)
  if (identity === null || readSource(directory)?.identity !== identity) {
    const sha256 = await sha256Of(source, deps)
    if (sha256 !== there.model.fileSha256) {
      throw new Fault(
        'conflict',
        `model ${name} is there, of a file with SHA-256 ${there.model.fileSha256}; ${source.path} has ${sha256}`,
        { param: 'name' },
      )
    }
    writeSource(directory, { path: source.path, identity })
  }
  return { ...there, made: false }
}

/** Finds a disk by its digest. Reads the file only if there is a disk of a file of its size. */
async function findByDigest(stateDir: string, source: OpenSource, deps: AddDeps): Promise<StoredModel | null> {
  const candidates = wholeModels(stateDir).filter(({ model }) => model.fileBytes === source.sizeBytes)
  if (candidates.length === 0) return null
  const sha256 = await sha256Of(source, deps)
  const found = candidates.find(({ model }) => model.fileSha256 === sha256) ?? null
  if (found !== null) {
    writeSource(pathsOf(stateDir).of(found.model.name), { path: source.path, identity: source.identity })
  }
  return found
}

async function sha256Of(source: OpenSource, { onProgress, signal }: AddDeps): Promise<string> {
  const sha256 = new Bun.CryptoHasher('sha256')
  const piece = new Uint8Array(4 * 1024 * 1024)
  for (let at = 0; at < source.sizeBytes; ) {
    signal.throwIfAborted()
    const { bytesRead } = await source.handle.read(piece, 0, Math.min(piece.length, source.sizeBytes - at), at)
    if (bytesRead === 0) break
    sha256.update(piece.subarray(0, bytesRead))
    at += bytesRead
    onProgress({ bytes: at, totalBytes: source.sizeBytes })
  }
  await source.checkUnchanged()
  return sha256.digest('hex')
}

/** Room on the file system that stays free for other programs. */
const spareBytes = 64 * 1024 * 1024

async function makeModel(added: NewModel, source: OpenSource, deps: AddDeps): Promise<AddedModel> {
  const { stateDir } = added
  const { directory, adding, removing, of } = pathsOf(stateDir)
  const neededBytes = modelDiskBytes(source.sizeBytes) + spareBytes
  const { freeBytes } = diskSpace(directory)
  if (freeBytes < neededBytes) {
    throw new Fault('host.disk_full', `${directory}: the disk needs ${neededBytes} bytes, ${freeBytes} are free`)
  }
  // Before hours of reading, because it may fail.
  const golden = await added.golden()
  try {
    mkdirSync(adding, { mode: 0o700 })
    const facts = await writeDisk(`${adding}/${diskFileName}`, source, deps)
    const name = added.name ?? `file-${facts.fileSha256.slice(0, digestChars)}`
    const model: WorkloadModel = { name, ...facts, golden }
    writeSource(adding, { path: source.path, identity: source.identity })
    writeFacts(adding, model)
    // An existing directory holds no complete disk; for a given name `findThere` has established that.
    if (existsSync(of(name))) renameSync(of(name), removing)
    renameSync(adding, of(name))
    syncDirectory(directory)
    return { disk: `${of(name)}/${diskFileName}`, model, made: true }
  } catch (error) {
    if (deps.signal.aborted) throw error
    const isFull = [error, Object(error).cause].some(cause => systemErrorCode(cause) === 'ENOSPC')
    if (!isFull) throw wrapFault(error, `make the disk of ${source.path}`)
    throw new Fault('host.disk_full', `${directory}: no room for the disk of ${source.path}`, { cause: error })
  } finally {
    for (const left of [adding, removing]) removeTree(left)
  }
}

/** Length of the digest in the name of a disk that was added without a name. */
const digestChars = 32

async function writeDisk(path: string, source: OpenSource, deps: AddDeps): Promise<ModelDiskFacts> {
  await using target = await open(path, 'wx', 0o400)
  const facts = await writeModelDisk({ source: source.handle, fileBytes: source.sizeBytes, target }, deps)
  await source.checkUnchanged()
  await target.sync()
  return facts
}

function writeFacts(directory: string, model: WorkloadModel): void {
  writeFileAtomic(`${directory}/${factsFileName}`, `${canonicalJson(model)}\n`, { mode: 0o600 })
}

function writeSource(directory: string, source: Source): void {
  writeFileAtomic(`${directory}/${sourceFileName}`, `${canonicalJson(source)}\n`, { mode: 0o600 })
}

async function replaceGolden(
  { disk, model }: StoredModel,
  golden: () => Promise<GoldenAnswer | null>,
): Promise<StoredModel> {
  const replaced = { ...model, golden: await golden() }
  writeFacts(disk.slice(0, -diskFileName.length - 1), replaced)
  return { disk, model: replaced }
}

/** Removes an unused disk, complete or not. Faults: invalid_request, not_found, conflict, internal. */
export function removeModel(stateDir: string, name: string): void {
  const { directory, removing, of } = pathsOf(stateDir)
  if (!isModelName(name) || !existsSync(of(name))) {
    throw new Fault('not_found', `there is no model ${JSON.stringify(name)}`, { param: 'name' })
  }
  using _lock = lockModels(stateDir)
  try {
    renameSync(of(name), removing)
    syncDirectory(directory)
  } catch (error) {
    throw wrapFault(error, `remove model ${name}`)
  }
  removeTree(removing)
}

/** Returns the path of the disk's file, even if the model is damaged. */
export function modelDiskPath(stateDir: string, name: string): string {
  return `${pathsOf(stateDir).of(name)}/${diskFileName}`
}

/** Returns a name for the disk of this file: the file's own, in letters that names may have. */
export function modelNameOf(file: string): string {
  const letters = basename(file)
    .toLowerCase()
    .replace(/\.gguf$/, '')
    .replace(/[^a-z0-9._-]+/g, '-')
    .replace(/^[^a-z0-9]+/, '')
    .slice(0, 63)
  return letters === '' ? 'model' : letters
}
