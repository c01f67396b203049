// Adds the inputs of a flake's output to the store before it is built: from the binary caches in the request, and fixed
// outputs by their hash. Effects: programs.

import { webVerifiers } from '../../attest/receipt/hybrid-verify.ts'
import { fromBase64 } from '../../base/bytes.ts'
import type { NixOptions } from '../../contract/http/build-options.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'
import { hasOtherBytes, nixFailure } from './causes.plan.ts'
import { type NixFetch, nixShowArgv, nixStoreListArgv, readDerivations } from './nix.plan.ts'
import {
  fingerprintOf,
  type Missing,
  type NixPath,
  nixEvaluateArgv,
  nixMissingArgv,
  nixPrefetchArgv,
  nixSubstituteArgv,
  type PathInfo,
  readInputs,
  readMissing,
  readPathInfos,
} from './realise.plan.ts'

export type Answer = { readonly code: number; readonly stdout: string; readonly stderr: string }

export type Realising = {
  /** Runs a program on the store of the fetch. */
  readonly run: (program: { name: string; network: boolean; argv: readonly string[] }) => Promise<Answer>
  /** Flake and output in the form of `nix build`. */
  readonly reference: string
  readonly caches: NixOptions['caches']
  readonly say: (line: string) => void
  /** Returns the end of the last program's output. */
  readonly tail: () => string
}

const remedy = 'add a binary cache that has it to nix_caches, or push it to one (`nix copy --to`)'

/**
 * Realises all inputs of the output, but not the output itself, and returns every path added to the store. Failures:
 * `source_unreachable`, `checksum_mismatch` (signature or hash), `build_failed` if the flake cannot be evaluated.
 */
export async function realise(realising: Realising): Promise<readonly NixPath[]> {
  const { run, caches } = realising
  const inputs = await evaluate(realising)
  if (inputs.length === 0) return []
  // At this point the store has the flake's inputs and the files of the evaluation. A dry run may list other paths than
  // those that arrive: one cache may describe a path that Nix then takes from another, and responses may change.
  const known = new Set((await storedPaths(run)).map(({ path }) => path))
  await fetchMissing(realising, inputs)
  const came = (await storedPaths(run)).filter(({ path }) => !known.has(path))
  return await Promise.all(came.map(info => signedPath(info, caches)))
}

/** Returns every valid path of the store. */
export async function storedPaths(run: Realising['run']): Promise<readonly PathInfo[]> {
  const { code, stdout } = await run({ name: 'nix-list', network: false, argv: nixStoreListArgv() })
  const infos = code === 0 ? readPathInfos(stdout) : null
  refuseUnless(infos !== null, 'internal', () => `nix path-info: did not list paths, exit code ${code}`)
  return infos
}

async function fetchMissing(realising: Realising, inputs: readonly string[]): Promise<void> {
  const { caches, say } = realising
  const first = await missingOf(realising, inputs)
  const fixed = await fixedOutputs(realising, first.build)
  const missing = fixed.length === 0 ? first : await fetchFixed(realising, inputs, fixed)
  refuseUnless(
    missing.unknown.length === 0,
    'source_unreachable',
    () => `nix: ${missing.unknown[0]} is in no cache of the request, though another path there needs it; ${remedy}`,
  )
  if (missing.fetch.length === 0) return
  say(`${missing.fetch.length} paths from ${caches.map(({ url }) => url).join(', ')}`)
  await substitute(realising, missing.fetch)
}

async function evaluate({ run, reference, caches, say, tail }: Realising): Promise<readonly string[]> {
  const show = (name: 'new' | 'old') =>
    run({ name: 'nix-evaluate', network: false, argv: nixEvaluateArgv(reference, name) })
  const newer = await show('new')
  const { code, stdout } = newer.code === 0 ? newer : await show('old')
  if (code !== 0 && caches.length === 0) {
    // For example a flake that builds during evaluation: the build may do that, without a network.
    say('evaluating the flake requires a build: fetching ends here')
    return []
  }
  if (code !== 0) throw nixFailure(`nix: the flake cannot be evaluated: exit code ${code}`, tail())
  const inputs = readInputs(stdout)
  refuseUnless(inputs !== null, 'internal', () => 'nix derivation show: no inputs of a derivation')
  return inputs
}

async function missingOf({ run, caches, tail }: Realising, inputs: readonly string[]): Promise<Missing> {
  const { code, stderr } = await run({
    name: 'nix-missing',
    network: caches.length > 0,
    argv: nixMissingArgv(inputs, caches),
  })
  refuseUnless(
    code === 0 && !/unable to download|does not appear to be a binary cache/.test(stderr),
    'source_unreachable',
    () => `nix_caches: a cache cannot be read; ask the operator which hosts are allowed: ${tail()}`,
  )
  return readMissing(stderr)
}

async function fixedOutputs({ run }: Realising, drvPaths: readonly string[]): Promise<readonly NixFetch[]> {
  if (drvPaths.length === 0) return []
  const show = (name: 'new' | 'old') =>
    run({ name: 'nix-show', network: false, argv: nixShowArgv(drvPaths, { name, recursive: false }) })
  const newer = await show('new')
  const shown = newer.code === 0 ? newer : await show('old')
  const derivations = shown.code === 0 ? readDerivations(shown.stdout) : null
  refuseUnless(derivations !== null, 'internal', () => 'nix derivation show: no list of derivations')
  return derivations.fetches
}

/** Returns what is still missing, without the programs that would have fetched the outputs. */
async function fetchFixed(
  realising: Realising,
  inputs: readonly string[],
  fixed: readonly NixFetch[],
): Promise<Missing> {
  const { run, caches, say, tail } = realising
  const argv = nixPrefetchArgv(fixed)
  say(`${fixed.length} fixed outputs by their hash`)
  const fetched = argv === null ? null : await run({ name: 'nix-prefetch', network: true, argv })
  const told = tail()
  const missing = await missingOf(realising, inputs)
  const still = await fixedOutputs(realising, missing.build)
  // Without an address, the build itself may create it: it has no network, and Nix compares the hash.
  const left = still.find(({ urls }) => urls.length > 0 || caches.length > 0)
  if (left === undefined) return missing
  const isOther = /hash mismatch/i.test(fetched?.stderr ?? '')
  throw new BuildFailure(
    isOther ? 'checksum_mismatch' : 'source_unreachable',
    `nix: the fixed output ${left.name} (${left.url ?? 'without a URL'}) cannot be fetched by its hash; ${remedy}: ${told}`,
  )
}

async function substitute({ run, caches, tail }: Realising, paths: readonly string[]): Promise<void> {
  const { code, stderr } = await run({ name: 'nix-substitute', network: true, argv: nixSubstituteArgv(paths, caches) })
  if (code !== 0) {
    const isOther = hasOtherBytes(stderr)
    const problem = isOther
      ? 'a path has other bytes than its description, or no signature by a key of the request; check the key of each cache'
      : 'a path cannot be fetched; ask the operator which hosts are allowed'
    throw new BuildFailure(isOther ? 'checksum_mismatch' : 'source_unreachable', `nix_caches: ${problem}: ${tail()}`)
  }
}

/** Identifies the signing key for the provenance. Nix has verified hash and signature. */
async function signedPath(info: PathInfo, caches: NixOptions['caches']): Promise<NixPath> {
  const message = fingerprintOf(info)
  const signers: string[] = []
  for (const key of new Set(caches.map(({ publicKey }) => publicKey))) {
    const [name = '', text = ''] = key.split(':')
    const publicKey = fromBase64(text)
    for (const signature of info.signatures.filter(signature => signature.startsWith(`${name}:`))) {
      const bytes = fromBase64(signature.slice(name.length + 1))
      if (publicKey?.length !== 32 || bytes?.length !== 64 || signers.includes(key)) continue
      if (await webVerifiers.ed25519(bytes, message, publicKey, noContext)) signers.push(key)
    }
  }
  const storePath = info.path.slice(info.path.lastIndexOf('/') + 1)
  refuseUnless(
    signers.length > 0 || info.contentAddress !== null,
    'checksum_mismatch',
    () => `nix_caches: ${storePath} is not signed by a key of the request; add its cache to nix_caches`,
  )
  return {
    kind: 'nix-path',
    name: storePath.replace(/^[0-9a-z]{32}-/, ''),
    storePath,
    narSha256: info.narSha256,
    signers,
    contentAddress: info.contentAddress,
  }
}

const noContext = new Uint8Array(0)
