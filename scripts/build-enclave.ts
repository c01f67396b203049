#!/usr/bin/env bun
// Compiles strongroom-enclave, which the measured image of the gateway's VM holds.

import { buildMain } from './build/main.ts'
import { enclaveRecipe } from './build/recipes.ts'

await buildMain(enclaveRecipe, process.argv.slice(2))
