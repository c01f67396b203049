// Styles that a script names: the bundler makes one file of them.

declare module '*.css' {}
