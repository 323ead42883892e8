package s3

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRole: without keys requests are signed with those of the role that the process has, which are
// asked for once.
func TestRole(t *testing.T) {
	const answer = `{"Code": "Success", "AccessKeyId": "passing-id", "SecretAccessKey": "passing-key",
		"Token": "passing-token", "Expiration": %q}`
	expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	asked := 0
	place := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
			fmt.Fprint(w, "session")
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
			fmt.Fprint(w, "the-role")
		case r.URL.Path == "/latest/meta-data/iam/security-credentials/the-role":
			asked++
			fmt.Fprintf(w, answer, expires)
		case r.Method == http.MethodPost && r.FormValue("Action") == "AssumeRoleWithWebIdentity" &&
			r.FormValue("RoleArn") == "arn:aws:iam::1:role/backup" && r.FormValue("WebIdentityToken") == "the-pod":
			asked++
			fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
				<AccessKeyId>passing-id</AccessKeyId><SecretAccessKey>passing-key</SecretAccessKey>
				<SessionToken>passing-token</SessionToken><Expiration>%s</Expiration></Credentials>
				</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, expires)
		default:
			http.Error(w, "no "+r.URL.Path, http.StatusNotFound)
		}
	}))
	defer place.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("the-pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name        string
		environment map[string]string
		found       bool
	}{
		{"a machine's", map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": place.URL}, true},
		{"a service account's", map[string]string{"AWS_ROLE_ARN": "arn:aws:iam::1:role/backup",
			"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ENDPOINT_URL_STS": place.URL}, true},
		{"none", map[string]string{"AWS_EC2_METADATA_DISABLED": "true"}, false},
		{"a person's files", map[string]string{"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": keysOf(t)},
			false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
				t.Setenv(name, "")
			}
			for name, value := range tt.environment {
				t.Setenv(name, value)
			}
			asked = 0
			s := serve(t, httptest.NewServer)
			s.before = func(w http.ResponseWriter, r *http.Request) bool {
				signed := strings.Contains(r.Header.Get("Authorization"), "Credential=passing-id/") &&
					r.Header.Get("X-Amz-Security-Token") == "passing-token"
				if !signed {
					w.WriteHeader(http.StatusForbidden)
				}
				return !signed
			}
			store := open(t, s, func(c *Config) { c.AccessKeyID, c.SecretAccessKey = "", "" })
			for range 2 {
				err := store.Put(t.Context(), "x", []byte("x"))
				if tt.found && err != nil || !tt.found && (err == nil || !strings.Contains(err.Error(), "no role of AWS")) {
					t.Errorf("%v", err)
				}
			}
			if tt.found && asked != 1 || !tt.found && s.requests.Load() != 0 {
				t.Errorf("keys were asked for %d times, the store %d times", asked, s.requests.Load())
			}
		})
	}
}

// keysOf is a file with keys of a person.
func keysOf(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "credentials")
	text := "[default]\naws_access_key_id = passing-id\naws_secret_access_key = passing-key\naws_session_token = passing-token\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
