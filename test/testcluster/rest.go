package testcluster

import (
	"net/http"
	"os"
	"strings"

	restclient "ankole.storage/rest/client"
)

// REST is a client of the REST API with the token of the cluster's administrator.
func (c *Cluster) REST() (*restclient.Client, error) {
	if c.TokenFile == "" { // no manager, or a build of before the token
		return restclient.New(c.API, "")
	}
	return restclient.NewWith(c.API, restclient.TokenFile(c.TokenFile))
}

// Authorize has a request show that token.
func (c *Cluster) Authorize(r *http.Request) error {
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return nil
}
