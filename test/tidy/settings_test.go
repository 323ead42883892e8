package tidy

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ankole.storage/api/volumefield"
	"ankole.storage/controlplane/setting"
)

const settingDir = "controlplane/setting"

// settingRow is a line of a table of docs/guide/settings.md.
var settingRow = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| (.*) \\|$")

// settingNames returns the constants of package setting that are names of settings.
func settingNames(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, s := range sources(t) {
		if s.dir() != settingDir || s.test {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Names) != 1 || len(v.Values) != 1 {
				return true
			}
			if value, ok := v.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
				name, _ := strconv.Unquote(value.Value) // the parser took it
				if _, err := setting.Lookup(name); err == nil {
					names[v.Names[0].Name] = name
				}
			}
			return true
		})
	}
	return names
}

// settingsRead returns the settings that code outside of the table names, by constant, and those
// that are the default of a volume's field.
func settingsRead(t *testing.T) map[string]bool {
	t.Helper()
	names, found := settingNames(t), map[string]bool{}
	for _, f := range volumefield.All {
		found[f.Setting] = true
	}
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.dir(), settingDir) || strings.HasPrefix(path.Base(s.dir()), "test") {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "setting" && names[sel.Sel.Name] != "" {
					found[names[sel.Sel.Name]] = true
				}
			}
			return true
		})
	}
	return found
}

// TestSettingsAreRead: a setting does something and a test holds that, or docs/guide/settings.md
// and docs/guide/limitations.md say that it does nothing, and why.
func TestSettingsAreRead(t *testing.T) {
	t.Parallel()
	rows, limits := map[string]string{}, read(t, "docs/guide/limitations.md")
	for _, m := range settingRow.FindAllStringSubmatch(read(t, "docs/guide/settings.md"), -1) {
		if rows[m[1]] != "" {
			t.Errorf("docs/guide/settings.md has two rows of %s", m[1])
		}
		rows[m[1]] = m[2]
	}
	isRead := settingsRead(t)
	for _, d := range setting.Definitions() {
		row := rows[d.Name]
		_, why, idle := strings.Cut(row, "no effect")
		delete(rows, d.Name)
		switch {
		case row == "":
			t.Errorf("docs/guide/settings.md has no row of %s", d.Name)
		case idle && isRead[d.Name]:
			t.Errorf("%s is read, and docs/guide/settings.md says that it has no effect", d.Name)
		case idle && len(why) < len(": none"):
			t.Errorf("docs/guide/settings.md does not say why %s has no effect", d.Name)
		case idle && !strings.Contains(limits, "`"+d.Name+"`"):
			t.Errorf("docs/guide/limitations.md does not name %s, which has no effect", d.Name)
		case !idle && !isRead[d.Name]:
			t.Errorf("nothing reads %s, and docs/guide/settings.md does not say that it has no effect", d.Name)
		case !idle && len(references(row)) == 0:
			t.Errorf("docs/guide/settings.md names no test of what %s does", d.Name)
		case !idle && strings.Contains(limits, "`"+d.Name+"`,"):
			t.Errorf("docs/guide/limitations.md has %s among settings without an effect", d.Name)
		}
	}
	for name := range rows {
		t.Errorf("docs/guide/settings.md has a row of %s, which is no setting", name)
	}
}
