// Checks the rules that a caller requests for a key. Pure.

import type { KeyRules, OfferedModels } from './key-rules.ts'

/** Returns why these rules contradict each other or the offered models, with the field; null if they are valid. */
export function rulesProblem(
  { models, aliases }: KeyRules,
  offered: OfferedModels,
): { param: 'aliases'; message: string } | null {
  const names = new Set<string>()
  for (const { name, model } of aliases ?? []) {
    const alias = `the alias ${JSON.stringify(name)}`
    if (offered.served.has(name)) {
      return { param: 'aliases', message: `${alias} is the id of a model that the gateway serves; choose another name` }
    }
    if (offered.served.has(model) && !offered.aliased.has(model)) {
      const message = `${alias} leads to ${JSON.stringify(model)}, which is answered outside of the measured VM; clients ask for it by its own id`
      return { param: 'aliases', message }
    }
    if (names.has(name)) return { param: 'aliases', message: `${JSON.stringify(name)} is an alias twice` }
    names.add(name)
    if (models !== null && !models.includes(model)) {
      const message = `${alias} is for ${JSON.stringify(model)}, which is not among the models of the key`
      return { param: 'aliases', message }
    }
  }
  return null
}
