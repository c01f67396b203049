// git command lines that fetch one commit over https and write exactly its files. Pure.
//
// A submodule is a separate repository, fetched by its commit.
//
// Nothing of the repository runs: no hooks, filters or LFS. There is only this configuration, one protocol and one
// host, no redirects and no credentials. git checks each incoming object (git-config(1), gitattributes(5),
// gitprotocol-http(5)).

import { messageOf } from '../../base/fault.ts'
import type { NamedSubmodule } from '../../linux/source/gitmodules.ts'
import { showName } from '../../linux/source/tree.plan.ts'
import { BuildFailure } from '../failure.ts'

export type CloneOrder = { readonly url: string; readonly ref: string | null }

/** Returns the repository's address without credentials and fragment. Failure `source_invalid`. */
export function checkClone({ url, ref }: CloneOrder): URL {
  const refuse = (problem: string): never => {
    throw new BuildFailure('source_invalid', problem)
  }
  if (!/^https:\/\/[\x21-\x7e]+$/.test(url)) refuse('repo_url: not an https URL')
  const parsed = URL.canParse(url) ? new URL(url) : refuse('repo_url: not a URL')
  if (parsed.protocol !== 'https:') refuse('repo_url: not an https URL')
  if (
    parsed.username !== '' ||
    parsed.password !== '' ||
    url.slice('https://'.length).split('/')[0]?.includes('@') === true
  ) {
    refuse('repo_url: with a user or password; the service takes no credentials')
  }
  if (parsed.hash !== '' || parsed.search !== '')
    refuse('repo_url: with a query or fragment; name a branch, tag or commit in repo_ref')
  if (ref !== null && refProblem(ref) !== null) refuse(`repo_ref: ${showName(ref)} ${refProblem(ref)}`)
  return parsed
}

/** Returns the problem of a ref; null if it is valid (git-check-ref-format(1)) and cannot be an option or a refspec. */
function refProblem(ref: string): string | null {
  if (/^[-+^:]/.test(ref)) return 'begins with a character that git interprets'
  if (!/^[\x21-\x7e]+$/.test(ref)) return 'contains a character that is not allowed in a ref'
  if (/[~^:?*[\\]|\.\.|@\{|\/\/|^\/|\/$|\.$|\.lock$|(?:^|\/)\./.test(ref) || ref === '@')
    return 'is not the name of a branch, tag or commit'
  return null
}

export const gitPlaces = { dir: '/build/git', tree: '/build/source', ca: '/build/ca.pem' } as const

/** Returns git's environment, in addition to that of every program. */
export function gitEnvironment(proxy: string): Record<string, string> {
  return {
    GIT_ALLOW_PROTOCOL: 'https',
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_TERMINAL_PROMPT: '0',
    GIT_ASKPASS: '/bin/false',
    GIT_LFS_SKIP_SMUDGE: '1',
    GIT_NO_REPLACE_OBJECTS: '1',
    GIT_SSL_CAINFO: gitPlaces.ca,
    https_proxy: proxy,
    no_proxy: '',
  }
}

const CONFIG = {
  'core.hooksPath': '/dev/null',
  'core.attributesFile': '/dev/null',
  'core.fsmonitor': 'false',
  'core.autocrlf': 'false',
  'core.symlinks': 'true',
  'core.fileMode': 'true',
  'core.protectHFS': 'true',
  'core.protectNTFS': 'true',
  'credential.helper': '',
  'protocol.allow': 'never',
  'protocol.https.allow': 'always',
  'http.followRedirects': 'false',
  'http.lowSpeedLimit': '1000',
  'http.lowSpeedTime': '60',
  'transfer.fsckObjects': 'true',
  'fetch.fsckObjects': 'true',
  'fetch.recurseSubmodules': 'false',
  'submodule.recurse': 'false',
  'transfer.bundleURI': 'false',
  'gc.auto': '0',
  'maintenance.auto': 'false',
  'advice.detachedHead': 'false',
} as const satisfies Record<string, string>

/** Overrides the repository's own attributes, so that files match the commit byte by byte. */
export const attributes = '* -text !eol -ident -filter !working-tree-encoding -diff -merge\n'

function git(...argv: readonly string[]): string[] {
  const config = Object.entries(CONFIG).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  return ['git', ...config, `--git-dir=${gitPlaces.dir}`, `--work-tree=${gitPlaces.tree}`, ...argv]
}

export const initArgv = () => git('init', '--quiet', '--template=', '--initial-branch=main')

/** Fetches a ref: a commit, HEAD, or the name of a branch or tag. */
export function fetchArgv(url: URL, ref: string | null): string[] {
  const options = ['--quiet', '--depth=1', '--no-tags', '--no-recurse-submodules', '--no-write-fetch-head', '--refmap=']
  return git('fetch', ...options, '--', url.href, `${ref ?? 'HEAD'}:refs/strongroom/source`)
}

export const checkoutArgv = () => git('checkout', '--quiet', '--force', '--detach', 'refs/strongroom/source')
export const idsArgv = () => git('rev-parse', 'refs/strongroom/source^{commit}', 'refs/strongroom/source^{tree}')

const fsckPattern = /fsck|error in (?:tree|commit|tag|blob|object)|hasDotdot|hasDotgit|fullPathname|symlink/i
const noRefPattern = /couldn't find remote ref|not our ref|no such remote ref/i
/** The proxy or the server has responded, and will respond in the same way again. */
const refusedPattern = /\b40[0-9]\b|could not read Username|authentication failed|repository .* not found/i

/** Reports whether another attempt can succeed. `output`: the end of git's output. */
export function mayPass(output: string): boolean {
  return ![fsckPattern, noRefPattern, refusedPattern].some(pattern => pattern.test(output))
}

/** Returns the failure of `git fetch`. If git rejects an object, the repository is at fault. */
export function fetchFailure(url: URL, ref: string | null, code: number, output: string): BuildFailure {
  const what = `git fetch of ${url.href}${ref === null ? '' : `, ref ${ref}`}: exit code ${code}`
  if (fsckPattern.test(output)) return new BuildFailure('source_invalid', `${what}: git refuses an object: ${output}`)
  const advice =
    ref !== null && /^[0-9a-fA-F]{7,39}$/.test(ref)
      ? 'a commit needs 40 hexadecimal digits; fewer are taken for the name of a branch or tag'
      : noRefPattern.test(output)
        ? `the repository has no branch, tag or commit ${ref ?? 'HEAD'}; compare with \`git ls-remote\``
        : 'check URL and ref, that the repository is public, and that the operator allows its host'
  return new BuildFailure('source_unreachable', `${what}; ${advice}: ${output}`)
}

/** Lists which of these paths the commit contains, with their kinds. */
export function entriesArgv(paths: readonly string[]): string[] {
  return git('ls-tree', '-z', '--full-tree', '--', 'refs/strongroom/source', ...paths)
}

/** Returns the commit of each submodule in the output of `git ls-tree -z`, by its path. */
export function readSubmoduleCommits(output: string): Map<string, string> {
  const entries = output.split('\0').flatMap(line => {
    const [, commit, path] = /^160000 commit ([0-9a-f]{40})\t(.+)$/s.exec(line) ?? []
    return commit === undefined || path === undefined ? [] : [[path, commit] as const]
  })
  return new Map(entries)
}

const archiveAdvice = 'or send an archive made after `git submodule update --init --recursive`'

/** Returns the address of a submodule. Failure `source_invalid`, which names the submodule. */
export function checkSubmodule({ path, url }: NamedSubmodule): URL {
  const refuse = (problem: string): never => {
    throw new BuildFailure('source_invalid', `submodule ${showName(path)}: ${problem}; ${archiveAdvice}`)
  }
  if (url === null) return refuse('.gitmodules names no url; add the https address of its repository')
  const shown = showName(url)
  if (/^\.{0,2}\//.test(url))
    return refuse(`its url ${shown} is relative; write the whole https address in .gitmodules`)
  if (!url.startsWith('https://')) return refuse(`its url ${shown} is not https; write an https address in .gitmodules`)
  try {
    return checkClone({ url, ref: null })
  } catch (error) {
    return refuse(`its url ${shown} cannot be fetched: ${messageOf(error).replace(/^repo_url: /, '')}`)
  }
}

/** Returns the failure of a submodule's fetch, which names the submodule. */
export function submoduleFailure(path: string, failure: BuildFailure): BuildFailure {
  return new BuildFailure(
    failure.errorType,
    `submodule ${showName(path)}: ${failure.message}\nRemedy: ask the operator to allow its host, ${archiveAdvice}`,
  )
}
