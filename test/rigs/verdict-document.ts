// Whether what a command printed meets the published schema of verdicts, and has no field that the schema lacks. Pure.

import { type TSchema, TypeGuard } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { VERDICT_DOCUMENTS } from '../../src/client/verify/verdict-schema.ts'

const commands: ReadonlyMap<string, TSchema> = new Map(
  Object.entries(VERDICT_DOCUMENTS).map(([name, schema]) => [name, closed(schema)]),
)

/** Faults of what `verify COMMAND --json` printed; none for other commands and for errors. */
export function documentFaults(argv: readonly string[], stdout: string): string[] {
  const schema = argv[0] === 'verify' && argv.includes('--json') ? commands.get(argv[1] ?? '') : undefined
  if (schema === undefined || !stdout.startsWith('{')) return []
  const document: Record<string, unknown> = JSON.parse(stdout)
  if (!('checks' in document)) return []
  return [...Value.Errors(schema, document)].map(({ path, message }) => `${path}: ${message}`)
}

/** The same schema without room for fields that it does not name. */
function closed(schema: TSchema): TSchema {
  if (TypeGuard.IsObject(schema)) {
    const properties = Object.entries(schema.properties).map(([name, field]) => [name, closed(field)])
    return { ...schema, properties: Object.fromEntries(properties), additionalProperties: false }
  }
  if (TypeGuard.IsArray(schema)) return { ...schema, items: closed(schema.items) }
  if (TypeGuard.IsUnion(schema)) return { ...schema, anyOf: schema.anyOf.map(closed) }
  return schema
}
