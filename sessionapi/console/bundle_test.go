package console_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cubeplexai/cubepod/sessionapi/console"
)

func modules(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestModulesAreJoinedInTheOrderTheyDepend(t *testing.T) {
	out, err := console.Bundle(modules(map[string]string{
		"app.js": "import { one, Two } from './a.js';\nimport { three } from './b.js';\none(Two, three);\n",
		"a.js":   "import { three } from './b.js';\n\n/** one */\nexport function one() { return three; }\n\nexport class Two {}\n",
		"b.js":   "// export nothing else\nexport const three = 3;\nexport async function* four() {}\n",
	}), "app.js")
	if err != nil {
		t.Fatal(err)
	}
	want := `'use strict';
(() => {
// b.js
const $b = (() => {
// export nothing else
const three = 3;
async function* four() {}

return { three, four };
})();
// a.js
const $a = (() => {
const { three } = $b;

/** one */
function one() { return three; }

class Two {}

return { one, Two };
})();
// app.js
const $app = (() => {
const { one, Two } = $a;
const { three } = $b;
one(Two, three);

return {  };
})();
})();
`
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

func TestModulesOfAnotherFormAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"missing":   {map[string]string{"app.js": "import { a } from './none.js';\n"}, "none.js"},
		"circle":    {map[string]string{"app.js": "import { a } from './a.js';\n", "a.js": "import { b } from './app.js';\n"}, "imports itself"},
		"default":   {map[string]string{"app.js": "export default 1;\n"}, "another form"},
		"renaming":  {map[string]string{"app.js": "import { a as b } from './a.js';\n", "a.js": ""}, "another form"},
		"dynamic":   {map[string]string{"app.js": "const a = await import('./a.js');\n", "a.js": ""}, "another form"},
		"elsewhere": {map[string]string{"app.js": "import { a } from 'https://example.com/a.js';\n"}, "another form"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := console.Bundle(modules(tt.files), "app.js")
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %q", err, tt.want)
			}
		})
	}
}
