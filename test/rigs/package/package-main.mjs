// The client of package-client.mjs as a program: commands on standard input, a line of JSON each; answers on standard output.

import { createInterface } from 'node:readline'
import { createClient } from './package-client.mjs'

const client = createClient()
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await client(JSON.parse(line)))}\n`)
}
