// What a gateway key may use: a list of models, and names of its own for them. On every wire that says it. Pure.

import { type Static, Type } from '@sinclair/typebox'

export const keyModelsMax = 32
export const keyAliasesMax = 32

const closed = { additionalProperties: false } as const
/** No character that ends a line, in a log or a header. */
const Name = Type.String({ minLength: 1, maxLength: 256, pattern: '^[^\\u0000-\\u001f\\u007f]*$' })

/** Null: every model that the gateway has. Empty: none. */
export const KeyModels = Type.Union([Type.Array(Name, { maxItems: keyModelsMax, uniqueItems: true }), Type.Null()])

/** The model that is meant by each name. A name goes before a model of that id. Null: none. */
export const KeyAliases = Type.Union([
  Type.Array(Type.Object({ name: Name, model: Name }, closed), { maxItems: keyAliasesMax }),
  Type.Null(),
])

export type KeyRules = {
  readonly models: Static<typeof KeyModels>
  readonly aliases: Static<typeof KeyAliases>
}

export const NO_RULES: KeyRules = { models: null, aliases: null }

/** Why these rules make no sense together, with the field; null: they do. */
export function rulesProblem({ models, aliases }: KeyRules): { param: 'aliases'; message: string } | null {
  const names = new Set<string>()
  for (const { name, model } of aliases ?? []) {
    if (names.has(name)) return { param: 'aliases', message: `${JSON.stringify(name)} is an alias twice` }
    names.add(name)
    if (models !== null && !models.includes(model)) {
      const message = `the alias ${JSON.stringify(name)} is for ${JSON.stringify(model)}, which is not among the models of the key`
      return { param: 'aliases', message }
    }
  }
  return null
}

/** The model that a key means by a name; null: there is none, or it may not use it. Nobody learns which of the two. */
export function resolveModel(
  { models, aliases }: KeyRules,
  served: Pick<ReadonlySet<string>, 'has'>,
  name: string,
): string | null {
  const model = aliases?.find(alias => alias.name === name)?.model ?? name
  return served.has(model) && (models === null || models.includes(model)) ? model : null
}

/** Every name that a key may send, in the order of the gateway's models, its own names behind them. */
export function modelNames(rules: KeyRules, served: ReadonlySet<string>): string[] {
  const names = [...served, ...(rules.aliases ?? []).map(alias => alias.name)]
  return [...new Set(names)].filter(name => resolveModel(rules, served, name) !== null)
}
