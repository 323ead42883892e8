//go:build nolegacy

package setting

// Without support for instance managers of types engine and replica their settings do not exist;
// objects that hold a value of one are ignored.
var legacyDefinitions []Definition

// CarriedCPU has nothing to carry over.
func CarriedCPU(Values) (value string, ok bool) { return "", false }

func legacyAgainst(string) string { return "" }

func checkLegacyCPU(string, string, Values) error { return nil }
