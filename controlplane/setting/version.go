package setting

import semver "k8s.io/apimachinery/pkg/util/version"

// Later compares two values of CurrentLonghornVersion; false where one of them is no semantic
// version, as that of a build by hand.
func Later(a, b string) bool {
	v, aerr := semver.ParseSemantic(a)
	w, berr := semver.ParseSemantic(b)
	return aerr == nil && berr == nil && w.LessThan(v)
}

// IsVersion tells whether a value is a semantic version.
func IsVersion(value string) bool {
	_, err := semver.ParseSemantic(value)
	return err == nil
}
