// Keeps test/golden/openapi.json in step with the schemas: `--write` renews it, `--check` fails when it has drifted.

import { openapiDocument } from '../src/server/openapi.ts'

const goldenPath = new URL('../test/golden/openapi.json', import.meta.url)

/** The committed form of the document. */
function goldenText(): string {
  return `${JSON.stringify(openapiDocument(), null, 2)}\n`
}

const [mode, ...rest] = process.argv.slice(2)
if (rest.length > 0 || (mode !== '--check' && mode !== '--write')) {
  process.stderr.write('usage: bun scripts/openapi.ts --check | --write\n')
  process.exitCode = 2
} else if (mode === '--write') {
  await Bun.write(goldenPath, goldenText())
} else {
  const golden = Bun.file(goldenPath)
  if (!(await golden.exists()) || (await golden.text()) !== goldenText()) {
    process.stderr.write('test/golden/openapi.json has drifted; run `bun run openapi` and read the difference\n')
    process.exitCode = 1
  }
}
