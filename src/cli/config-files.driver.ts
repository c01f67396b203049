// The files and directories that a configuration names, for `strongroom config check`. Effects: reads them; changes
// nothing.
//
// A problem keeps the daemon from starting, or an upstream from working. After a warning it serves: without an image,
// a model or a firmware, and `doctor` fails on them.

import { X509Certificate } from 'node:crypto'
import { accessSync, constants, readFileSync, statSync } from 'node:fs'
import { iso, systemClock } from '../base/clock.ts'
import { Fault, messageOf, systemErrorCode } from '../base/fault.ts'
import { readAuthorities } from '../builds/fetch/authorities.ts'
import { hasWorker } from '../config/checks/worker.ts'
import type { Config } from '../config/schema.ts'
import { readPair } from '../http/pair.ts'
import { openCollector } from '../inference/traces/collector.ts'
import { loadUpstream } from '../inference/upstream/load-target.ts'
import { loadGpus } from '../inference/worker/gpu-policy.ts'
import { readWorkerImage } from '../inference/worker/root.ts'
import { readPassword } from '../linux/net/outgoing.ts'
import { type Image, loadBuilderImage, loadGatewayVmImage, loadImage } from '../vm/launch/image.driver.ts'
import { measurementOf } from './doctor/image-check.driver.ts'

export type FileFinding = {
  readonly kind: 'problem' | 'warning'
  /** Dotted path of the field that names the file. */
  readonly field: string
  readonly message: string
}

/** Never throws. A file that this user may not read is a warning: the daemon runs as root. */
export function checkFiles(config: Config, nowMs: number): FileFinding[] {
  return [
    ...tlsFindings(config, nowMs),
    ...proxyFindings(config),
    ...vmFindings(config),
    ...buildFindings(config, nowMs),
    ...inferenceFindings(config, nowMs),
    ...fleetFindings(config, nowMs),
  ]
}

const expirySoonMs = 14 * 86_400_000
const textBytesMax = 1_048_576

function tlsFindings({ tls }: Config, nowMs: number): FileFinding[] {
  if (tls.certificate_file === '') return []
  const certificate = readNamed('tls.certificate_file', tls.certificate_file)
  const key = readNamed('tls.key_file', tls.key_file)
  if ('finding' in certificate || 'finding' in key) return unreadOf([certificate, key])
  const verdict = readPair(certificate.text, key.text)
  if (verdict.ok) return datesOf('tls.certificate_file', verdict.pair, nowMs)
  const field = verdict.reason.includes('private key') ? 'tls.key_file' : 'tls.certificate_file'
  const path = field === 'tls.key_file' ? tls.key_file : tls.certificate_file
  return [problem(field, `${path}: ${verdict.reason}`)]
}

type Dates = { readonly notBeforeMs: number; readonly notAfterMs: number }

function datesOf(field: string, { notBeforeMs, notAfterMs }: Dates, nowMs: number): FileFinding[] {
  if (notBeforeMs > nowMs) return [warning(field, `the certificate is not valid before ${iso(notBeforeMs)}`)]
  if (notAfterMs <= nowMs) return [warning(field, `the certificate expired at ${iso(notAfterMs)}`)]
  if (notAfterMs - nowMs < expirySoonMs) return [warning(field, `the certificate expires at ${iso(notAfterMs)}`)]
  return []
}

function vmFindings({ vm }: Config): FileFinding[] {
  const firmware = vm.snp_boot === 'igvm' ? (['vm.igvm', vm.igvm] as const) : (['vm.firmware', vm.firmware] as const)
  return [
    ...imageFindings(vm, {
      field: 'vm.image_dir',
      load: () => loadImage(vm.image_dir),
      vcpus: ['vm.vcpus', vm.vcpus],
    }),
    ...warned('vm.qemu', () => accessSync(vm.qemu, constants.X_OK)),
    ...(firmware[1] === '' ? [] : warned(firmware[0], () => checkReadable(firmware[1]))),
  ]
}

/** The daemon starts without it, but none of its requests leaves. */
function proxyFindings({ network: { proxy } }: Config): FileFinding[] {
  const [field, file] = ['network.proxy.password_file', proxy.password_file]
  const unread = unreadOf([readNamed(field, file)])
  if (file === '' || unread.length > 0) return unread
  try {
    readPassword(file)
    return []
  } catch (error) {
    return [problem(field, messageOf(error).replace(`${field} `, ''))]
  }
}

type NamedImage = {
  /** Field that names its directory. */
  readonly field: string
  readonly load: () => Image
  readonly vcpus: readonly [field: string, count: number]
}

/** A shape that the image has no launch digest for, or other firmware than its own: every launch would be refused. */
function imageFindings(vm: Config['vm'], { field, load, vcpus: [vcpusField, vcpus] }: NamedImage): FileFinding[] {
  const unread = warned(field, () => void load())
  return unread.length > 0 ? unread : warned(vcpusField, () => void measurementOf(load(), vm, vcpus))
}

/** None while service C is off: nothing of it is read then. */
function buildFindings({ listen, vm, builds }: Config, nowMs: number): FileFinding[] {
  if (listen.builds === '') return []
  const load = () => loadBuilderImage(builds.image_dir)
  return [
    ...imageFindings(vm, { field: 'builds.image_dir', load, vcpus: ['builds.vcpus', builds.vcpus] }),
    ...fetchFindings(builds, nowMs),
  ]
}

/** The daemon does not start without it. */
function fetchFindings({ fetch_hosts: hosts, fetch_ca_file: path }: Config['builds'], nowMs: number): FileFinding[] {
  const field = 'builds.fetch_ca_file'
  if (hosts.length === 0 || path === '') return []
  const read = readNamed(field, path)
  if ('finding' in read) return [read.finding]
  try {
    return authoritiesOf(field, readAuthorities(path), nowMs)
  } catch (error) {
    return [problem(field, messageOf(error).replace(`${field}: `, ''))]
  }
}

/** None while the gateway is off: nothing of it is read then. */
function inferenceFindings(config: Config, nowMs: number): FileFinding[] {
  const { listen, inference } = config
  if (listen.inference === '') return []
  const { worker, upstreams, placement } = inference
  const ofModel =
    worker.model_file === '' ? [] : warned('inference.worker.model_file', () => checkReadable(worker.model_file))
  return [
    ...ofModel,
    ...gpuFindings(worker),
    ...(placement === 'vm' ? gatewayImageFindings(config) : hasWorker(worker) ? workerImageFindings(worker) : []),
    ...upstreams.flatMap((upstream, index) => upstreamFindings(upstream, `inference.upstreams.${index}`, nowMs)),
    ...tracesFindings(inference.traces, nowMs),
  ]
}

function gpuFindings(worker: Config['inference']['worker']): FileFinding[] {
  try {
    loadGpus(worker)
    return []
  } catch (error) {
    return [problem('inference.worker.gpu_policy', messageOf(error))]
  }
}

function tracesFindings(traces: Config['inference']['traces'], nowMs: number): FileFinding[] {
  const { endpoint, headers_file, ca_file } = traces
  if (endpoint === '') return []
  const field = { headers: 'inference.traces.headers_file', ca: 'inference.traces.ca_file' }
  const ca = readNamed(field.ca, ca_file)
  const unread = unreadOf([readNamed(field.headers, headers_file), ca])
  if (unread.length > 0 || !('text' in ca)) return unread
  try {
    openCollector(traces, systemClock)
    return ca_file === '' ? [] : authoritiesOf(field.ca, ca.text, nowMs)
  } catch (error) {
    return [problem(error instanceof Fault ? (error.param ?? field.headers) : field.headers, messageOf(error))]
  }
}

/** The daemon does not start without them. */
function fleetFindings({ fleet }: Config, nowMs: number): FileFinding[] {
  const field = 'fleet.ca_file'
  const ca = readNamed(field, fleet.ca_file)
  const unread = unreadOf([readNamed('fleet.password_file', fleet.password_file), ca])
  if (unread.length > 0 || !('text' in ca) || fleet.ca_file === '') return unread
  return authoritiesOf(field, ca.text, nowMs)
}

function workerImageFindings({ image_dir: directory }: Config['inference']['worker']): FileFinding[] {
  return warned('inference.worker.image_dir', () => void readWorkerImage(directory))
}

/** Image of the gateway's VM, with a worker or without. */
function gatewayImageFindings({ vm, inference }: Config): FileFinding[] {
  return imageFindings(vm, {
    field: 'inference.worker.image_dir',
    load: () => loadGatewayVmImage(inference.worker.image_dir),
    vcpus: ['inference.vcpus', inference.vcpus],
  })
}

type Upstream = Config['inference']['upstreams'][number]

function upstreamFindings(upstream: Upstream, path: string, nowMs: number): FileFinding[] {
  const key = readNamed(`${path}.key_file`, upstream.key_file)
  const unread = unreadOf([key, readNamed(`${path}.ca_file`, upstream.ca_file)])
  if (unread.length > 0) return unread
  try {
    const { ca } = loadUpstream(upstream)
    return ca === null ? [] : authoritiesOf(`${path}.ca_file`, ca, nowMs)
  } catch (error) {
    return [problem(path, messageOf(error))]
  }
}

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g

function authoritiesOf(field: string, pem: string, nowMs: number): FileFinding[] {
  const blocks = pem.match(PEM_CERTIFICATE) ?? []
  if (blocks.length === 0) return [problem(field, 'the file holds no PEM certificate')]
  try {
    return blocks
      .map(block => new X509Certificate(block))
      .flatMap(({ validFrom, validTo }) =>
        datesOf(field, { notBeforeMs: Date.parse(validFrom), notAfterMs: Date.parse(validTo) }, nowMs),
      )
  } catch (error) {
    return [problem(field, `a certificate cannot be read: ${messageOf(error)}`)]
  }
}

type FileText = { readonly text: string } | { readonly finding: FileFinding }

function unreadOf(reads: readonly FileText[]): FileFinding[] {
  return reads.flatMap(read => ('finding' in read ? [read.finding] : []))
}

/** Reads a file that a field names. Empty if the field names none. */
function readNamed(field: string, path: string): FileText {
  if (path === '') return { text: '' }
  try {
    checkReadable(path)
    if (statSync(path).size > textBytesMax) throw new Error(`${path} is larger than ${textBytesMax} bytes`)
    return { text: readFileSync(path, 'utf8') }
  } catch (error) {
    return { finding: unreadable(error, field) ?? problem(field, wordsOf(error)) }
  }
}

/** A regular file that this user may read; looked at before it is opened, for a FIFO would be waited for. */
function checkReadable(path: string): void {
  if (!statSync(path).isFile()) throw new Error(`${path} is not a regular file`)
  accessSync(path, constants.R_OK)
}

function warned(field: string, check: () => void): FileFinding[] {
  try {
    check()
    return []
  } catch (error) {
    return [unreadable(error, field) ?? warning(field, wordsOf(error))]
  }
}

/** Null when permission is not what is missing, or when this is root, as the daemon is. */
function unreadable(error: unknown, field: string): FileFinding | null {
  const cause = error instanceof Fault ? error.cause : error
  const uid = process.geteuid?.() ?? 0
  if (uid === 0 || !['EACCES', 'EPERM'].includes(systemErrorCode(cause) ?? '')) return null
  return warning(field, `not checked, because uid ${uid} may not read it: ${messageOf(error)}; run the check as root`)
}

function wordsOf(error: unknown): string {
  const path: unknown = Reflect.get(Object(error), 'path')
  return systemErrorCode(error) === 'ENOENT' && typeof path === 'string' ? `${path} does not exist` : messageOf(error)
}

function problem(field: string, message: string): FileFinding {
  return { kind: 'problem', field, message }
}

function warning(field: string, message: string): FileFinding {
  return { kind: 'warning', field, message }
}
