// Keeps the committed OpenAPI documents in step with schemas and routes: `--write` renews them; `--check` fails when a
// document has drifted, a route is not documented, or a documented operation has no route.

import { buildsOpenapiDocument } from '../src/builds/http/openapi.ts'
import { BUILD_ROUTES } from '../src/builds/http/routes.ts'
import { routeFaults } from '../src/http/openapi.ts'
import { GATEWAY_ROUTES } from '../src/inference/gateway/gateway.ts'
import { inferenceOpenapiDocument } from '../src/inference/gateway/openapi/openapi.ts'
import { openapiDocument } from '../src/instances/http/openapi.ts'
import { INSTANCE_ROUTES } from '../src/instances/http/routes.ts'
import { LOG_OPERATIONS } from '../src/transparency/operations.ts'

/** Both services serve the log. */
const LOG_ROUTES = Object.values(LOG_OPERATIONS)

const DOCUMENTS = {
  'test/golden/openapi.json': { document: openapiDocument(), routes: [...INSTANCE_ROUTES, ...LOG_ROUTES] },
  'src/inference/gateway/openapi/openapi.json': { document: inferenceOpenapiDocument(), routes: GATEWAY_ROUTES },
  'test/golden/openapi-builds.json': { document: buildsOpenapiDocument(), routes: [...BUILD_ROUTES, ...LOG_ROUTES] },
} as const

const [mode, ...rest] = process.argv.slice(2)
if (rest.length > 0 || (mode !== '--check' && mode !== '--write')) {
  process.stderr.write('usage: bun scripts/openapi.ts --check | --write\n')
  process.exitCode = 2
} else {
  for (const [name, { document, routes }] of Object.entries(DOCUMENTS)) {
    const text = `${JSON.stringify(document, null, 2)}\n`
    const committed = Bun.file(new URL(`../${name}`, import.meta.url))
    const faults = routeFaults(document, routes).map(fault => `${name}: ${fault}\n`)
    if (mode === '--write') {
      await Bun.write(committed, text)
    } else if (!(await committed.exists()) || (await committed.text()) !== text) {
      faults.push(`${name} has drifted; run \`bun run openapi\` and read the difference\n`)
    }
    if (faults.length > 0) process.exitCode = 1
    process.stderr.write(faults.join(''))
  }
}
