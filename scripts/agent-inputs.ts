#!/usr/bin/env bun
// Lists what the measured guest executable is made of; --write commits the list to its file, so that growth is seen in review.

import { writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { agentInputsFile, agentInputsText, findAgentInputs } from './lib/agent-inputs.ts'

const repo = resolve(import.meta.dir, '..')
const text = agentInputsText(await findAgentInputs(repo))
if (process.argv.includes('--write')) writeFileSync(join(repo, agentInputsFile), text)
else process.stdout.write(text)
