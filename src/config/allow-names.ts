// The names that instances may reach by, as `network.allow_names` has them: NAME, or *.NAME for all below it. Pure.

import { isIP } from 'node:net'
import { domainToASCII } from 'node:url'
import { Type } from '@sinclair/typebox'

const nameAllowed =
  'a DNS name in lowercase of two labels or more, international ones as A-labels (xn--…); "*." in front stands for every name below it'

export const AllowNames = Type.Array(Type.String({ minLength: 1, maxLength: 255, allowed: nameAllowed }), {
  default: [],
  maxItems: 256,
  description:
    'Names that instances may reach, such as "crates.io", or "*.githubusercontent.com" for every name below that one. With any, all else is closed to instances but the addresses in `egress.allow` and what this appliance serves: they use this host as their resolver, which queries the `resolvers` for these names only, and an address is open while an answer for one of them is valid. [] for no such list: instances reach the world, and query the `resolvers` directly.',
})

type Problem = { readonly field: string; readonly message: string }

type Around = {
  readonly network: {
    readonly allow_names: readonly string[]
    readonly resolvers: readonly string[]
  }
  readonly instances: { readonly inference_base_url: string }
}

/** RFC 1123 2.1; 63 bytes a label and 253 together (RFC 1035 2.3.4). A last label of digits reads as an address. */
const NAME = /^(?=.{3,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+(?![0-9]+$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

/** All of them. */
export function allowNamesProblems({ network, instances }: Around): Problem[] {
  const { allow_names: names, resolvers } = network
  if (names.length === 0) return []
  const url = instances.inference_base_url
  const gateway = URL.canParse(url) ? new URL(url).hostname.replace(/^\[|\]$/g, '') : null
  const isGatewayOpen = gateway === null || isIP(gateway) !== 0 || new NameList(names).allows(gateway)
  return [
    ...names.flatMap((name, index) => {
      const message = nameProblem(name) ?? (names.indexOf(name) === index ? null : `names ${name} twice`)
      return message === null ? [] : [{ field: `network.allow_names.${index}`, message }]
    }),
    ...(resolvers.length > 0
      ? []
      : [{ field: 'network.resolvers', message: 'is empty, but the names of allow_names need a resolver' }]),
    ...(isGatewayOpen
      ? []
      : [
          {
            field: 'instances.inference_base_url',
            message: `${gateway} is not in network.allow_names, so that instances cannot reach it; add it there`,
          },
        ]),
  ]
}

function nameProblem(text: string): string | null {
  const name = text.replace(/^\*\./, '')
  if (NAME.test(name)) return null
  const encoded = domainToASCII(name)
  const isOther = encoded !== name && NAME.test(encoded)
  const remedy = isOther ? `write ${text.startsWith('*.') ? '*.' : ''}${encoded}` : `allowed: ${nameAllowed}`
  return `${JSON.stringify(text)} is not allowed; ${remedy}`
}

/** Recognizes names on the list, in a time that does not grow with it. */
export class NameList {
  readonly #exact: ReadonlySet<string>
  readonly #parents: ReadonlySet<string>

  /** Entries that have passed the checks. */
  constructor(entries: readonly string[]) {
    this.#exact = new Set(entries.filter(entry => !entry.startsWith('*.')))
    this.#parents = new Set(entries.flatMap(entry => (entry.startsWith('*.') ? [entry.slice(2)] : [])))
  }

  /** `name` in lowercase, without a final dot. */
  allows(name: string): boolean {
    if (this.#exact.has(name)) return true
    for (let dot = name.indexOf('.'); dot !== -1; dot = name.indexOf('.', dot + 1)) {
      if (this.#parents.has(name.slice(dot + 1))) return true
    }
    return false
  }
}
