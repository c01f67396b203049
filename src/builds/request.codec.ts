// Parses the body of `POST /build`, whose source was stored while it arrived. Errors name the field. Pure.

import { Value } from '@sinclair/typebox/value'
import { Fault } from '../base/fault.ts'
import { parseFetchHost } from '../config/fetch-hosts.ts'
import { BuildRequest, plainDirectory, WAIVERS, type Waiver } from '../contract/http/build.ts'
import type { Toolchain, ToolchainOptions } from '../contract/http/build-options.ts'
import { clashText, optionsOfFields } from '../contract/http/option-words.ts'
import type { BuildsSettings } from './types.ts'

/** An uploaded source on disk. */
export type Upload = { readonly path: string; readonly sizeBytes: number; readonly sha256: string }

export type BuildWanted = {
  /** Lowercase hexadecimal. */
  readonly nonce: string
  readonly source:
    | { readonly kind: 'archive'; readonly name: string | null; readonly upload: Upload }
    | { readonly kind: 'git'; readonly url: string; readonly ref: string | null }
  readonly projectDir: string | null
  readonly toolchain: Toolchain | null
  readonly reproduce: boolean
  readonly options: ToolchainOptions | null
  readonly waivers: readonly Waiver[]
  /** Sources of a fetch besides public authorities and registry; null if there are none. */
  readonly fetchCaSha256: string | null
  readonly cratesMirror: string | null
}

export type RequestRules = Pick<BuildsSettings, 'fetchHosts' | 'rustMirror'> & {
  /** The service's own: SHA-256 of its authorities' PEM, and its mirror. */
  readonly fetchCaSha256: string | null
  readonly cratesMirror: string | null
}

/** Parses a request. `body`: its JSON, with a short placeholder instead of source_data. Fault invalid_request. */
export function parseBuildRequest(body: unknown, upload: Upload | null, rules: RequestRules): BuildWanted {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new Fault('invalid_request', 'The body must be a JSON object.')
  }
  // Clients that write every field use null for an absent value.
  const fields = Object.fromEntries(Object.entries(body).filter(([name, value]) => value !== null || name === 'nonce'))
  checkNonce(fields.nonce)
  if (!Value.Check(BuildRequest, fields)) throw schemaFault(fields)
  const { repo_url: url, repo_ref: ref = null, source_data: data, source_name: name = null } = fields
  if ((url === undefined) === (data === undefined)) {
    const found = url === undefined ? 'neither' : 'both'
    throw new Fault('invalid_request', `Send exactly one of repo_url and source_data; there is ${found}.`)
  }
  if (ref !== null && url === undefined) throw wrong('repo_ref', 'belongs to repo_url')
  if (name !== null && data === undefined) throw wrong('source_name', 'belongs to source_data')
  checkMirror('crates_mirror', fields.crates_mirror ?? null, rules.cratesMirror)
  return {
    nonce: fields.nonce.toLowerCase(),
    source:
      url === undefined
        ? { kind: 'archive', name: checkedName(name), upload: sent(upload) }
        : { kind: 'git', url: checkedUrl(url, rules), ref: checkedRef(ref) },
    projectDir: checkedDirectory(fields.project_dir ?? null),
    toolchain: fields.toolchain ?? null,
    reproduce: fields.reproduce ?? false,
    options: checkedOptions(fields, rules),
    waivers: WAIVERS.filter(name => fields[name] === true),
    fetchCaSha256: checkedAuthorities(fields.fetch_ca_sha256 ?? null, rules),
    cratesMirror: fields.crates_mirror ?? null,
  }
}

function sent(upload: Upload | null): Upload {
  if (upload === null || upload.sizeBytes === 0) throw wrong('source_data', 'must be an archive in base64')
  return upload
}

function checkNonce(nonce: unknown): void {
  if (nonce === undefined || nonce === null) throw wrong('nonce', 'is missing: send 16 random bytes in hexadecimal')
  if (typeof nonce !== 'string' || !/^(?:[0-9a-fA-F]{2}){1,16}$/.test(nonce)) {
    throw wrong('nonce', 'must be 1 to 16 bytes in hexadecimal: 2 to 32 digits, an even number')
  }
}

function schemaFault(fields: object): Fault {
  const first = Value.Errors(BuildRequest, fields).First()
  const name = first?.path.split('/')[1] ?? ''
  if (name !== '' && !Object.hasOwn(BuildRequest.properties, name)) {
    return new Fault('invalid_request', 'The body has an unknown field.', {
      ...(name.length <= 64 ? { param: name } : {}),
    })
  }
  return name === ''
    ? new Fault('invalid_request', 'The body does not fit the schema of a build request; see /openapi.json.')
    : wrong(name, `does not fit its schema: ${first?.message ?? 'see /openapi.json'}`)
}

function checkedUrl(text: string, { fetchHosts }: RequestRules): string {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || url.protocol !== 'https:' || !/^https:\/\/[^/]/.test(text))
    throw wrong('repo_url', 'must be an https URL')
  if (url.username !== '' || url.password !== '') throw wrong('repo_url', 'must be without credentials')
  if (/[\x00-\x20\x7f\\]/.test(text) || url.hash !== '' || url.search !== '') {
    throw wrong('repo_url', 'must be a plain address: no spaces, query or fragment')
  }
  const port = Number(url.port || 443)
  const isListed = fetchHosts.map(parseFetchHost).some(listed => listed?.host === url.hostname && listed.port === port)
  if (!isListed)
    throw wrong('repo_url', 'has a host that this service does not fetch from; send the source as source_data')
  return text
}

function checkedRef(ref: string | null): string | null {
  if (ref !== null && !/^[A-Za-z0-9_][A-Za-z0-9_./+@=-]*$/.test(ref)) {
    throw wrong('repo_ref', 'must be the name of a branch or tag, or a commit')
  }
  if (ref?.includes('..') === true || ref?.includes('@{') === true)
    throw wrong('repo_ref', 'must be one name, not a range')
  return ref
}

function checkedName(name: string | null): string | null {
  if (name !== null && (/[/\\\x00-\x1f\x7f]/.test(name) || name === '.' || name === '..')) {
    throw wrong('source_name', 'must be a plain file name')
  }
  return name
}

function checkedDirectory(directory: string | null): string | null {
  if (directory === null) return null
  const parts = directory.replace(/\/$/, '').split('/')
  if (/[\\\x00-\x1f\x7f]/.test(directory) || parts.some(part => part === '' || part === '..' || part === '.git')) {
    throw wrong('project_dir', 'must be a relative path within the source')
  }
  return plainDirectory(directory)
}

function checkedAuthorities(digest: string | null, { fetchCaSha256: own }: RequestRules): string | null {
  if (digest === null || digest === own) return digest
  const advice =
    own === null ? 'this service adds no certificate authorities; leave it out' : `those of this service have ${own}`
  throw wrong('fetch_ca_sha256', `does not match the authorities of this service: ${advice}`)
}

/**
 * Returns the options of one toolchain. They must not name another toolchain, or a host that the operator does not
 * allow.
 */
function checkedOptions(request: BuildRequest, { fetchHosts, rustMirror }: RequestRules): ToolchainOptions | null {
  const found = optionsOfFields(request, request.toolchain ?? null)
  if ('clash' in found) throw wrong(found.clash.field, clashText(found.clash))
  const { nix_caches: named = [] } = request
  const hosts = fetchHosts.map(parseFetchHost)
  const isListed = (text: string) => {
    const url = URL.canParse(text) ? new URL(text) : null
    const port = Number(url?.port || 443)
    return hosts.some(host => host?.host === url?.hostname && host?.port === port)
  }
  if (request.rust_mirror !== undefined) checkMirror('rust_mirror', request.rust_mirror, rustMirror)
  for (const field of ['go_proxy', 'npm_registry', 'pnpm_registry'] as const) {
    const address = request[field]
    if (address !== undefined && !isListed(address))
      throw wrong(field, 'has a host that this service does not fetch from; ask its operator')
  }
  for (const [index, { url: text, public_key: key }] of named.entries()) {
    const field = `nix_caches.${index}`
    if (!isListed(text))
      throw wrong(`${field}.url`, 'has a host that this service does not fetch from; ask its operator')
    if (named.findIndex(cache => keyName(cache.public_key) === keyName(key) && cache.public_key !== key) !== -1)
      throw wrong(`${field}.public_key`, 'has the same name as another key: Nix identifies a key only by its name')
    if (named.findIndex(cache => cache.url === text) !== index)
      throw wrong(`${field}.url`, 'names a cache twice; leave one out')
  }
  return found.options
}

function keyName(key: string): string {
  return key.slice(0, key.indexOf(':'))
}

function checkMirror(field: string, mirror: string | null, own: string | null): void {
  if (mirror === null || mirror === own) return
  const advice = own === null ? 'this service has no mirror; leave it out' : `that of this service is ${own}`
  throw wrong(field, `does not match the mirror of this service: ${advice}`)
}

function wrong(param: string, problem: string): Fault {
  return new Fault('invalid_request', `${param} ${problem}.`, { param })
}
