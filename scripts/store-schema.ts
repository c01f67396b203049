#!/usr/bin/env bun
// Prints the schema that the migrations make; --write commits it to src/store/migrations/schema.ts, from which a new database is made in one step.

import { writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { schemaFile, schemaFileText } from './lib/store-schema.ts'

const text = schemaFileText()
if (process.argv.includes('--write')) writeFileSync(resolve(import.meta.dir, '..', schemaFile), text)
else process.stdout.write(text)
