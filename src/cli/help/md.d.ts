// Markdown files as the bundler imports them `with { type: 'text' }`.

declare module '*.md' {
  const text: string
  export = text
}
