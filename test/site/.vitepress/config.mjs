// The site is docs/ as it is, with a list of contents and a search. `make site` builds it into .build/site.
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, posix, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../../..')
const repository = 'https://github.com/topodisk/topodisk'

const module = (path) => join(root, 'test/site/node_modules', path)

// slug names a heading as GitHub does, for which the links in docs/ are written.
const slug = (heading) => heading.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')

// contents are the sections of an index page and the pages that its lists name.
function contents(index) {
  const sections = []
  for (const line of readFileSync(join(root, 'docs', index), 'utf8').split('\n')) {
    const heading = line.match(/^## (.*)/)
    const page = line.match(/^- \[([^\]]+)\]\(((?:\.\.\/)?[a-z0-9-]+)\.md\)/)
    if (heading) sections.push({ text: heading[1], items: [] })
    if (page) sections.at(-1)?.items.push({ text: page[1], link: '/' + posix.join(posix.dirname(index), page[2]) })
  }
  return sections.filter((section) => section.items.length > 0)
}

// outward turns links to files outside docs/ into links to the repository.
function outward(md) {
  md.core.ruler.push('outward', (state) => {
    const page = posix.join('docs', state.env.relativePath ?? '')
    const from = posix.dirname(page.replace(/index\.md$/, 'README.md'))
    for (const link of state.tokens.flatMap((token) => token.children ?? []).filter((token) => token.type === 'link_open')) {
      const [path, anchor] = link.attrGet('href').split('#')
      const file = posix.join(from, path)
      if (path === '' || /^[a-z]+:/.test(path) || file.startsWith('docs/')) continue
      if (!existsSync(join(root, file))) throw new Error(`${page} links to ${path}, which is not there`)
      link.attrSet('href', `${repository}/blob/main/${file}${anchor ? '#' + anchor : ''}`)
    }
  })
}

// drawings has blocks of mermaid drawn by the page instead of shown as text.
function drawings(md) {
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, i, ...rest) =>
    tokens[i].info.trim() === 'mermaid' ? `<Drawing text="${encodeURIComponent(tokens[i].content)}" />` : fence(tokens, i, ...rest)
}

// words cuts text into words for the search; Chinese has no spaces between them.
const words = (text) => Array.from(new Intl.Segmenter('zh', { granularity: 'word' }).segment(text), (part) => part.segment.toLowerCase()).filter((word) => /[\p{L}\p{N}]/u.test(word))

export default defineConfig({
  title: 'topodisk',
  description: "Disks of Alibaba Cloud ECS for Kubernetes, in the zone where the Pod can run",
  base: process.env.SITE_BASE ?? '/',
  srcDir: join(root, 'docs'),
  outDir: join(root, '.build', 'site'),
  cacheDir: join(root, '.build', 'site-cache'),
  rewrites: { 'README.md': 'index.md', 'zh/README.md': 'zh/index.md' },
  // The pages lie outside this module: what their compiled form imports is found by name.
  vite: { resolve: { alias: [{ find: /^vue\/server-renderer$/, replacement: module('vue/server-renderer/index.mjs') }, { find: /^vue$/, replacement: module('vue/index.mjs') }] } },
  markdown: {
    anchor: { slugify: slug },
    toc: { slugify: slug },
    config: (md) => {
      outward(md)
      drawings(md)
    },
  },
  locales: {
    root: { label: 'English', lang: 'en' },
    zh: {
      label: '简体中文',
      lang: 'zh-CN',
      themeConfig: {
        sidebar: contents('zh/contents.md'),
        outline: { label: '本页', level: [2, 3] },
        docFooter: { prev: '上一页', next: '下一页' },
        darkModeSwitchLabel: '外观',
        sidebarMenuLabel: '目录',
        returnToTopLabel: '回到顶部',
        langMenuLabel: '语言',
      },
    },
  },
  themeConfig: {
    sidebar: contents('README.md'),
    outline: { level: [2, 3] },
    socialLinks: [{ icon: 'github', link: repository }],
    search: {
      provider: 'local',
      options: {
        miniSearch: { options: { tokenize: words } },
        locales: {
          zh: {
            translations: {
              button: { buttonText: '搜索', buttonAriaLabel: '搜索' },
              modal: {
                noResultsText: '没有结果：',
                resetButtonTitle: '清除',
                footer: { selectText: '打开', navigateText: '移动', closeText: '关闭' },
              },
            },
          },
        },
      },
    },
  },
})
