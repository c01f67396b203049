// The rules of src/README.md over a tree of sources. Pure: each rule returns what breaks it, one line each.

import { INNER_ORDERS } from './rooms/inner-orders.ts'
import { codeOf, type Import, importsOf } from './source.ts'
import type { Tree } from './tree.ts'

/** Imports point from a higher layer to a lower one. Folders of one layer are siblings and never import each other. */
export const LAYERS = {
  'src/base': 0,
  'src/contract': 1,
  'src/attest': 1,
  'src/linux': 1,
  'src/config': 2,
  'src/http': 3,
  'src/host': 3,
  'src/store': 3,
  'src/vm': 4,
  'src/backup': 4,
  'src/upgrade': 4,
  'src/transparency': 4,
  'src/fleet': 4,
  'src/instances': 5,
  'src/inference': 5,
  'src/builds': 5,
  'src/enclave-host': 5,
  'src/operator': 5,
  'src/console': 5,
  'src/appliance': 6,
  'src/cli': 7,
  'src/main.ts': 8,
} as const satisfies Record<string, number>

/** Entry points of their own, beside the layers: they see these folders and themselves. */
export const APART = {
  'src/guest': ['src/base', 'src/contract', 'src/attest', 'src/linux', 'src/verifier'],
  'src/builder': ['src/guest', 'src/base', 'src/contract', 'src/attest', 'src/linux'],
  'src/guest-main.ts': ['src/guest', 'src/base'],
  'src/broker': ['src/base', 'src/contract', 'src/attest', 'src/linux'],
  'src/broker-main.ts': ['src/broker', 'src/base'],
  'src/console/web': ['src/base', 'src/contract'],
  'src/verifier': ['src/base', 'src/contract', 'src/attest', 'src/linux'],
  'src/terminal': ['src/base', 'src/contract', 'src/attest', 'src/linux'],
  'src/client': ['src/terminal', 'src/verifier', 'src/base', 'src/contract', 'src/attest', 'src/linux'],
  'src/enclave': [
    ...['src/base', 'src/config', 'src/contract', 'src/attest', 'src/linux', 'src/http', 'src/host', 'src/store'],
    ...['src/inference', 'src/guest'],
  ],
} as const satisfies Record<string, readonly string[]>

/**
 * The arrows from the layers to an entry point. The command line joins the operator's commands and the relying party's.
 * The host before it hands its clients to a gateway VM, and a gateway before it sends prompts to another one, run the
 * verifier.
 */
const useOfApart: Readonly<Record<string, readonly string[]>> = {
  'src/main.ts': ['src/terminal'],
  'src/cli': ['src/verifier', 'src/client', 'src/terminal'],
  'src/enclave-host': ['src/verifier'],
  'src/inference': ['src/verifier'],
}

type Edge = Import & { readonly from: string; readonly to: string }

/** Imports that point up, sideways, out of src, or into an entry point. */
export function layerFaults(tree: Tree): string[] {
  const faults: string[] = []
  for (const path of tree.keys()) if (unitOf(path) === null) faults.push(`${path}: belongs to no layer`)
  for (const edge of edgesOf(tree)) {
    const where = `${edge.from}:${edge.line}: `
    const from = unitOf(edge.from)
    const to = unitOf(edge.to)
    if (edge.to === 'package.json') continue
    if (to === null) faults.push(`${where}${edge.to} is outside the layers`)
    else if (from !== null && from !== to && !mayImport(from, to)) faults.push(`${where}${from} must not import ${to}`)
  }
  return faults
}

/** Imports inside a room that point up or sideways, and files of a room that stand on none of its floors. */
export function innerOrderFaults(tree: Tree): string[] {
  const faults: string[] = []
  for (const [room, floors] of Object.entries<readonly (readonly string[])[]>(INNER_ORDERS)) {
    const placeOf = (path: string) => {
      if (!path.startsWith(`${room}/`)) return null
      const name = path.slice(room.length + 1).split('/')[0] ?? ''
      return { name, floor: floors.findIndex(floor => floor.includes(name)) }
    }
    for (const path of tree.keys()) {
      if (placeOf(path)?.floor === -1) faults.push(`${path}: stands on no floor of ${room}`)
    }
    for (const edge of edgesOf(tree)) {
      const from = placeOf(edge.from)
      const to = placeOf(edge.to)
      if (from === null || to === null || from.name === to.name || from.floor < to.floor) continue
      faults.push(`${edge.from}:${edge.line}: inside ${room}, ${from.name} must not import ${to.name}`)
    }
  }
  return faults
}

/** Chains of imports, type-only ones included, that come back to where they began. One line for each knot. */
export function cycleFaults(tree: Tree): string[] {
  const edges = Map.groupBy(edgesOf(tree), edge => edge.from)
  const state = new Map<string, 'open' | 'done'>()
  const faults: string[] = []
  const visit = (path: string, trail: readonly string[]) => {
    if (state.get(path) === 'done') return
    if (state.get(path) === 'open') {
      faults.push([...trail.slice(trail.indexOf(path)), path].join(' -> '))
      return
    }
    state.set(path, 'open')
    for (const { to } of edges.get(path) ?? []) if (tree.has(to)) visit(to, [...trail, path])
    state.set(path, 'done')
  }
  for (const path of tree.keys()) visit(path, [])
  return faults
}

/** Rooms that are pure: browsers run them. */
const pureRooms = ['attest', 'verifier']
/**
 * The one folder in them that speaks with the network; nothing beside it may rely on it, and built-in modules stand in
 * its half for Bun and Node.
 */
const wireFolder = 'src/verifier/fetch/'
const nodeHalf = /^src\/verifier\/fetch\/node[a-z-]*\.ts$/
/** Cryptography by node:crypto, which that half may take from linux/. */
const nativeCode = /^src\/linux\/native-[a-z-]+\.ts$/

/** Dependencies where there may be none, and imports that cannot be checked. */
export function dependencyFaults(tree: Tree): string[] {
  const faults: string[] = []
  for (const [path, text] of tree) {
    const isOnWire = path.startsWith(wireFolder)
    const pure = isOnWire ? undefined : pureRooms.find(room => path.startsWith(`src/${room}/`))
    for (const { specifier, line } of importsOf(text)) {
      const where = `${path}:${line}: `
      const isOwn = specifier.startsWith('.')
      if (specifier === '') faults.push(`${where}a dynamic import of a computed name`)
      else if (isOwn && !/\.[a-z0-9]+$/.test(specifier)) faults.push(`${where}${specifier} has no file extension`)
      else if (!isOwn && path.startsWith('src/base/')) faults.push(`${where}base has no dependencies: ${specifier}`)
      else if (pure !== undefined && isBuiltin(specifier)) faults.push(`${where}${pure} is pure: ${specifier}`)
      else if (isOnWire && isBuiltin(specifier) && !nodeHalf.test(path)) faults.push(`${where}pages lack ${specifier}`)
      else if (pure !== undefined && isOwn && resolvePath(path, specifier).startsWith(wireFolder))
        faults.push(`${where}${pure} is pure: ${specifier}`)
      else if (isOwn && isSystemInVerifier(path, specifier)) faults.push(`${where}pages lack ${specifier}`)
    }
    // A declaration file names types and runs nothing.
    if (pure !== undefined && !path.endsWith('.d.ts')) {
      for (const { line, what } of effectsIn(text)) faults.push(`${path}:${line}: ${pure} is pure: ${what}`)
    }
  }
  return faults
}

function isSystemInVerifier(path: string, specifier: string): boolean {
  const to = resolvePath(path, specifier)
  const isSystem = path.startsWith('src/verifier/') && to.startsWith('src/linux/')
  return isSystem && !(nodeHalf.test(path) && nativeCode.test(to))
}

/** Imports of scripts, which run without the tests, from the tests that run them. */
export function scriptFaults(scripts: Tree): string[] {
  return edgesOf(scripts)
    .filter(edge => edge.to.startsWith('test/'))
    .map(edge => `${edge.from}:${edge.line}: a script must not import ${edge.to}`)
}

const pureSuffix = /\.(?:schema|machine|plan|codec|verify)\.ts$/
const effectSuffix = /\.(?:driver|query|routes|service)\.ts$/
/** Built-in modules that only compute. */
const pureBuiltins = new Set(['node:path', 'node:path/posix', 'node:buffer', 'node:util', 'node:crypto', 'node:assert'])

/** Files whose suffix says pure but that touch the world: themselves, or through anything they load. */
export function suffixFaults(tree: Tree): string[] {
  const valueEdges = Map.groupBy(
    edgesOf(tree).filter(edge => !edge.isTypeOnly),
    edge => edge.from,
  )
  const faults: string[] = []
  for (const [path, text] of tree) {
    if (!pureSuffix.test(path)) continue
    for (const { line, what } of effectsIn(text)) faults.push(`${path}:${line}: ${what} in a pure file`)
    const seen = new Set([path])
    const queue = [path]
    for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
      const impure = impureBuiltinsOf(tree.get(next) ?? '')
      if (impure.length > 0) faults.push(`${path}: pure, but loads ${next}, which imports ${impure.join(', ')}`)
      if (effectSuffix.test(next) || next.startsWith('src/host/')) faults.push(`${path}: pure, but loads ${next}`)
      for (const { to } of valueEdges.get(next) ?? []) {
        if (seen.has(to)) continue
        seen.add(to)
        queue.push(to)
      }
    }
  }
  return faults
}

/** Header comments, names and exports. */
export function formFaults(tree: Tree): string[] {
  const faults: string[] = []
  for (const [path, text] of tree) {
    const body = text.startsWith('#!') ? text.slice(text.indexOf('\n') + 1) : text
    if (!/^\/[/*]/.test(body)) faults.push(`${path}: no header comment`)
    if (/(?:^|\/)(?:utils?|helpers?|commons?|misc)\.(?:test\.)?ts$/.test(path))
      faults.push(`${path}: says nothing by its name`)
    if (/(?<![.\w$])export\s+default\b|\bas\s+default\b/.test(codeOf(text))) faults.push(`${path}: default export`)
  }
  return faults
}

const effects: readonly (readonly [RegExp, string])[] = [
  [/\bDate\.now\b/g, 'Date.now'],
  [/\bnew\s+Date\s*(?:\(\s*\)|(?![\s(]))/g, 'the current date'],
  [/\bperformance\.now\b/g, 'performance.now'],
  [/\bMath\.random\b/g, 'Math.random'],
  [/\b(?:getRandomValues|randomUUID|randomBytes|randomInt|generateKeyPair(?:Sync)?|generateKey)\b/g, 'randomness'],
  [/(?<![.\w$])fetch\s*\(/g, 'fetch'],
  [/(?<![.\w$])(?:setTimeout|setInterval|setImmediate)\s*\(/g, 'a timer'],
  [/(?<![.\w$])process\./g, 'process'],
  [/(?<![.\w$])Bun\b(?!\s*:)/g, 'Bun'],
  [/(?<![.\w$])console\./g, 'console'],
]

function effectsIn(text: string): { line: number; what: string }[] {
  const code = codeOf(text)
  return effects.flatMap(([pattern, what]) =>
    [...code.matchAll(pattern)].map(match => ({ line: code.slice(0, match.index).split('\n').length, what })),
  )
}

/** Reading an address is no I/O, although it lives in node:net. */
const addressImport = /^import \{ (?:(?:isIP|isIPv4|isIPv6|BlockList)(?:, )?)+ \} from 'node:net'$/gm

function impureBuiltinsOf(text: string): string[] {
  return importsOf(text.replace(addressImport, ''))
    .filter(item => !item.isTypeOnly && isBuiltin(item.specifier) && !pureBuiltins.has(item.specifier))
    .map(item => item.specifier)
}

function isBuiltin(specifier: string): boolean {
  return /^(?:node|bun):/.test(specifier) || specifier === 'bun'
}

/** Relative imports of the tree's files, resolved to paths. */
function edgesOf(tree: Tree): Edge[] {
  return [...tree].flatMap(([from, text]) =>
    importsOf(text)
      .filter(item => item.specifier.startsWith('.'))
      .map(item => ({ ...item, from, to: resolvePath(from, item.specifier) })),
  )
}

function resolvePath(from: string, specifier: string): string {
  const parts = from.split('/').slice(0, -1)
  for (const part of specifier.split('/')) {
    if (part === '..') parts.pop()
    else if (part !== '.') parts.push(part)
  }
  return parts.join('/')
}

function unitOf(path: string): string | null {
  // Entry points first: the console's page stands inside of its room.
  const units = [...Object.keys(APART), ...Object.keys(LAYERS)]
  return units.find(unit => path === unit || path.startsWith(`${unit}/`)) ?? null
}

function mayImport(from: string, to: string): boolean {
  const apart: Record<string, readonly string[]> = APART
  const layers: Record<string, number> = LAYERS
  const allowed = apart[from]
  if (allowed !== undefined) return allowed.includes(to)
  if (useOfApart[from]?.includes(to)) return true
  const fromLayer = layers[from]
  const toLayer = layers[to]
  return fromLayer !== undefined && toLayer !== undefined && toLayer < fromLayer
}
