// The file of `strongroom doctor --report` for the developers: facts about SEV-SNP on this host, and no secrets. Makes
// text of facts that report.driver.ts collects.
//
// Two rules keep secrets out. The configuration appears as booleans, numbers and choices from a list, because any text
// could be a secret. Every configured text is replaced wherever else it occurs, such as in a check.

import { Kind, type TSchema } from '@sinclair/typebox'
import { Config } from '../../../config/schema.ts'
import type { Check } from '../check.ts'

export type MachineReport = {
  readonly version: string
  /** uname(2), and the name of the distribution. */
  readonly kernel: string
  readonly distribution: string | null
  /** Boot parameters that concern memory encryption or the IOMMU. */
  readonly bootParameters: readonly string[]
  /** Vendor, product and BIOS of the board; no serial number. */
  readonly board: Readonly<Record<string, string | null>>
  readonly processor: Readonly<Record<string, string | null>>
  /** EAX, EBX, ECX, EDX in hexadecimal by leaf, or why a leaf cannot be read. */
  readonly cpuid: Readonly<Record<string, string>>
  /** Parameters of kvm_amd and ccp. */
  readonly moduleParameters: Readonly<Record<string, string | null>>
  readonly devices: Readonly<Record<string, string>>
  /** The answer of SNP_PLATFORM_STATUS, or why there is none. */
  readonly firmware: unknown
  readonly packages: readonly string[]
  /** Lines of the kernel's log about SEV. */
  readonly kernelLog: readonly string[]
}

/** The checks that concern a launch. Others tell of clients, networks and neighbours. */
const REPORTED_CHECKS: readonly string[] = [
  ...['platform', 'kvm', 'sev-snp', 'kernel', 'sev firmware', 'asids', 'tcb', 'canary', 'qemu', 'tpm', 'firmware'],
  ...['jail', 'tun', 'image', 'measurement', 'collateral', 'processes', 'open files', 'control groups', 'systemd'],
]

/** No share: parts of one file of the operator's. */
const linesMax = 200
const charsMax = 400
const shortTextChars = 4

type ReportInputs = {
  readonly checks: readonly Check[]
  readonly config: Config
  /** The configuration of an empty file. */
  readonly defaults: Config
  readonly madeAt: string
}

/** Returns the file, which is far below a mebibyte. */
export function hardwareReport(machine: MachineReport, { checks, config, defaults, madeAt }: ReportInputs): string {
  const texts = configuredTexts(config, defaults)
  const document = {
    format: 'strongroom/hardware-report/v1',
    made_at: madeAt,
    machine,
    checks: checks.filter(({ name }) => REPORTED_CHECKS.includes(name)),
    config: withoutTexts(Config, config),
  }
  return `${JSON.stringify(withoutConfigured(document, texts), null, 2)}\n`
}

/** Returns the value with its booleans, numbers and choices alone. A text becomes `set` or `the default`. */
function withoutTexts(schema: TSchema, value: unknown): unknown {
  if (schema[Kind] === 'Object') {
    const fields = Object.entries<TSchema>(schema.properties)
    return Object.fromEntries(
      fields.map(([name, field]) => [name, withoutTexts(field, Reflect.get(Object(value), name))]),
    )
  }
  if (schema[Kind] === 'Array') {
    const entries = Array.isArray(value) ? value : []
    const items: TSchema = schema.items
    return items[Kind] === 'Object' ? entries.map(entry => withoutTexts(items, entry)) : `${entries.length} entries`
  }
  if (typeof value === 'boolean' || typeof value === 'number') return value
  if (isChoice(schema, value)) return value
  return value === schema.default ? 'the default' : 'set'
}

function isChoice(schema: TSchema, value: unknown): boolean {
  const choices: readonly TSchema[] = schema[Kind] === 'Union' ? schema.anyOf : []
  return choices.some(choice => choice.const === value)
}

/** Returns every text of the configuration that is not its default nor a choice, the longest first. */
function configuredTexts(config: Config, defaultValues: Config): readonly string[] {
  const found = new Set<string>()
  // Parts of defaults are no secrets, and replacing them would hide much.
  const defaults = JSON.stringify(defaultValues)
  collect(Config, config)
  return [...found].filter(text => text.length >= shortTextChars).sort((a, b) => b.length - a.length)

  function collect(schema: TSchema, value: unknown): void {
    if (schema[Kind] === 'Object') {
      for (const [name, field] of Object.entries<TSchema>(schema.properties)) {
        collect(field, Reflect.get(Object(value), name))
      }
    } else if (schema[Kind] === 'Array') {
      for (const entry of Array.isArray(value) ? value : []) collect(schema.items, entry)
    } else if (typeof value === 'string' && value !== schema.default && !isChoice(schema, value)) {
      found.add(value)
      // A check may print a part of an address or a path.
      for (const part of value.split(/[/:@?&=,\s]+/))
        if (part.length >= 2 * shortTextChars && !defaults.includes(part)) found.add(part)
    }
  }
}

/** Replaces configured texts in every text, and shortens texts and lists. */
function withoutConfigured(value: unknown, texts: readonly string[]): unknown {
  if (typeof value === 'bigint') return `0x${value.toString(16)}`
  if (typeof value === 'string') {
    // Before shortening, so that no part of a text is left at the end.
    const clean = texts.reduce((text, configured) => text.replaceAll(configured, '(configured)'), value)
    return clean.length <= charsMax ? clean : `${clean.slice(0, charsMax)}…`
  }
  if (Array.isArray(value)) return value.slice(0, linesMax).map(entry => withoutConfigured(entry, texts))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, withoutConfigured(inner, texts)]))
}

const sevLine = /^(\[[ \d.]+\] *)?(SEV|SEV-ES|SEV-SNP|ccp|kvm[_-]amd|AMD-Vi|(AMD )?Memory Encryption|RMP)[ :]/

/**
 * Returns lines of the kernel's log that begin as its own about SEV do: others, such as those of audit, have commands,
 * names and paths of anyone. A path in a line is left out.
 */
export function sevLines(log: string): readonly string[] {
  const lines = log.split('\n').filter(line => sevLine.test(line))
  return lines.map(line => line.replaceAll(/(?<![\w/])\/[^\s/]\S*/g, '(path)'))
}

/** Returns a module's parameter without its path, if it is one: ccp has the file of INIT_EX. */
export function parameterText(value: string | null): string | null {
  return value?.includes('/') === true ? 'set' : value
}

/** Returns the parameters of /proc/cmdline that concern memory encryption or the IOMMU; no other may be printed. */
export function bootParameters(cmdline: string): readonly string[] {
  const known =
    /^(mem_encrypt|amd_iommu|iommu|iommu\.passthrough|kvm_amd\.[a-z_]+|ccp\.[a-z_]+|sev[a-z_.]*)(=[\w,.-]{1,32})?$/
  return cmdline.split(/\s+/).filter(word => known.test(word))
}
