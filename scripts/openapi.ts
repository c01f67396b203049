// Keeps the OpenAPI documents under test/golden in step with the schemas: `--write` renews them, `--check` fails when
// one has drifted.

import { buildsOpenapiDocument } from '../src/builds/http/openapi.ts'
import { inferenceOpenapiDocument } from '../src/inference/gateway/openapi/openapi.ts'
import { openapiDocument } from '../src/instances/http/openapi.ts'

const DOCUMENTS = {
  'openapi.json': openapiDocument,
  'openapi-inference.json': inferenceOpenapiDocument,
  'openapi-builds.json': buildsOpenapiDocument,
} as const

const [mode, ...rest] = process.argv.slice(2)
if (rest.length > 0 || (mode !== '--check' && mode !== '--write')) {
  process.stderr.write('usage: bun scripts/openapi.ts --check | --write\n')
  process.exitCode = 2
} else {
  for (const [name, toDocument] of Object.entries(DOCUMENTS)) {
    const text = `${JSON.stringify(toDocument(), null, 2)}\n`
    const golden = Bun.file(new URL(`../test/golden/${name}`, import.meta.url))
    if (mode === '--write') {
      await Bun.write(golden, text)
    } else if (!(await golden.exists()) || (await golden.text()) !== text) {
      process.stderr.write(`test/golden/${name} has drifted; run \`bun run openapi\` and read the difference\n`)
      process.exitCode = 1
    }
  }
}
