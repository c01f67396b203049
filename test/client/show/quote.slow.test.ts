// Goal: `strongroom show quote` prints every field of a TDX quote and never a verdict.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Malformed } from '../../../src/attest/malformed.ts'
import { decodeQuote } from '../../../src/attest/tdx/quote.ts'
import { shownQuoteText } from '../../../src/client/show/quote.ts'
import { quoteDocument } from '../../../src/client/tdx/quote-document.ts'
import { paintFor } from '../../../src/terminal/render.ts'
import { simulatedQuotes } from '../../rigs/attest/tdx/quotes.ts'
import { runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-quote-'))
afterAll(() => rmSync(dir, { recursive: true }))

const quotes = await simulatedQuotes()

// Goal: no signed byte can change without the document and the text for people changing.
test.each([...quotes])('each signed byte of $name', ({ quote: bytes }) => {
  const both = (input: Uint8Array) => {
    const quote = decodeQuote(input)
    return [JSON.stringify(quoteDocument(quote)), shownQuoteText(quote, paintFor(false))] as const
  }
  const [document, text] = both(bytes)
  const silent: number[] = []
  let read = 0
  for (let at = 0; at < decodeQuote(bytes).signedBytes.length; at += 1) {
    try {
      const [otherDocument, otherText] = both(bytes.with(at, (bytes[at] ?? 0) ^ 1))
      read += 1
      if (otherDocument === document || otherText === text) silent.push(at)
    } catch (error) {
      if (!(error instanceof Malformed)) throw error
    }
  }
  expect(silent).toEqual([])
  expect(read).toBeGreaterThan(600)
})

// Goal: both forms say first that nothing was verified.
test('nothing is verified', async () => {
  const path = join(dir, 'quote.bin')
  writeFileSync(path, quotes.at(-1)?.quote ?? '')
  const people = await runHere(['show', 'quote', path])
  expect(people.stdout).toStartWith('NOT VERIFIED: ')
  expect(people.stdout).not.toContain('PASS')
  const { code, stdout } = await runHere(['show', 'quote', path, '--json'])
  const document = JSON.parse(stdout)
  expect([code, Object.keys(document)[0], document.verified, document.quote.report_version]).toEqual([
    0,
    'verified',
    false,
    '1.5',
  ])
})
