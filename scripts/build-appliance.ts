#!/usr/bin/env bun
// Compiles the appliance: daemon and command line in one executable.

import { buildMain } from './build/main.ts'
import { applianceRecipe } from './build/recipes.ts'

await buildMain(applianceRecipe, process.argv.slice(2))
