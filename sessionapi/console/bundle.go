package console

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A browser drops what it loads when a network interface of its host comes or
// goes, and a page of many modules is then left half there. So the page loads
// one script, made here of its modules.
//
// The modules are ours, and of one form: an import takes names from "./x.js" on
// a line of its own, an export stands before a declaration, and no two modules
// import each other in a circle. [bundle] refuses anything else, which spares
// the server a compiler of JavaScript that is a quarter of its size.
var (
	importLine = regexp.MustCompile(`(?m)^import \{ (\w+(?:, \w+)*) \} from '\./(\w+)\.js';$`)
	exportWord = regexp.MustCompile(`(?m)^export (?:async function\*?|function\*?|class|const) (\w+)`)
	leftOver   = regexp.MustCompile(`(?m)^(?:import|export)\b.*$|\bimport\(.*$`)
)

// bundle joins the module entry of dir, and all that it imports, into one
// script. Each module is a function whose result is what it exports.
func bundle(dir fs.FS, entry string) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("'use strict';\n(() => {\n")
	done := map[string]bool{}
	var add func(name string, above []string) error
	add = func(name string, above []string) error {
		if slices.Contains(above, name) {
			return fmt.Errorf("%s.js imports itself by way of %s", name, strings.Join(above, ", "))
		}
		if done[name] {
			return nil
		}
		done[name] = true
		source, err := fs.ReadFile(dir, name+".js")
		if err != nil {
			return err
		}
		for _, m := range importLine.FindAllSubmatch(source, -1) {
			if err := add(string(m[2]), append(above, name)); err != nil {
				return err
			}
		}
		source = importLine.ReplaceAll(source, []byte("const { $1 } = $$$2;"))
		var exports []string
		source = exportWord.ReplaceAllFunc(source, func(decl []byte) []byte {
			exports = append(exports, string(exportWord.FindSubmatch(decl)[1]))
			return bytes.TrimPrefix(decl, []byte("export "))
		})
		if line := leftOver.Find(withoutComments(source)); line != nil {
			return fmt.Errorf("%s.js: this import or export is of another form: %s", name, line)
		}
		fmt.Fprintf(&out, "// %s.js\nconst $%s = (() => {\n%s\nreturn { %s };\n})();\n", name, name, source, strings.Join(exports, ", "))
		return nil
	}
	if err := add(strings.TrimSuffix(path.Base(entry), ".js"), nil); err != nil {
		return nil, err
	}
	out.WriteString("})();\n")
	return out.Bytes(), nil
}

var comments = regexp.MustCompile(`(?s)/\*.*?\*/|(?m)^\s*//.*$`)

func withoutComments(source []byte) []byte { return comments.ReplaceAll(source, nil) }
