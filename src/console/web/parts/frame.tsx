// Around each page, of operators and of tenants alike: the name, the menu of pages, and what stands at the menu's foot.

import { useSignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { Link } from './text.tsx'
import { ThemeChoice } from './theme-choice.tsx'

type FrameProps = {
  /** The first page. */
  readonly home: string
  readonly pages: readonly { readonly href: string; readonly words: string; readonly isHere: boolean }[]
  /** Beside the name. */
  readonly mark?: ComponentChildren
  readonly foot: ComponentChildren
  readonly children: ComponentChildren
}

export function Frame({ home, pages, mark, foot, children }: FrameProps) {
  const isOpen = useSignal(false)
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="top">
        <Link href={home} class="brand">
          <span class="brand-mark" aria-hidden="true" />
          Strongroom
        </Link>
        {mark}
        <button
          type="button"
          class="menu-button"
          aria-expanded={isOpen.value}
          aria-controls="menu"
          onClick={() => (isOpen.value = !isOpen.value)}
        >
          Menu
        </button>
      </header>
      <nav id="menu" class={isOpen.value ? 'side open' : 'side'} aria-label="Pages">
        {/* biome-ignore lint/a11y/useKeyWithClickEvents: the links in it are what is clicked, by keyboard too */}
        <ul onClick={() => (isOpen.value = false)}>
          {pages.map(({ href, words, isHere }) => (
            <li key={href}>
              <Link href={href} current={isHere}>
                {words}
              </Link>
            </li>
          ))}
        </ul>
        <div class="side-foot">
          {foot}
          <ThemeChoice />
        </div>
      </nav>
      {children}
    </div>
  )
}
