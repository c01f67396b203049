// The page's program: renders the console into its document. Effects: the page.

import './style/main.css'
import { render } from 'preact'
import { App } from './app.tsx'
import { followHistory } from './core/router.ts'
import { applyStoredTheme } from './core/theme.ts'

applyStoredTheme()
followHistory()
const place = document.getElementById('app')
if (place !== null) render(<App />, place)
