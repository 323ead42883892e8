package cluster

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/standalone/statedir"
)

const (
	// tokenFile in the state folder holds the token for the REST API, headerFile the header with it,
	// for curl, and pageFile a page that logs a browser in: a token on a command line would be seen by
	// every user of the machine.
	tokenFile  = "rest-token"
	headerFile = "rest-header"
	pageFile   = "ui.html"
	// tokenAccount is the service account of the token, and the name of the Secret that the token
	// ends with.
	tokenAccount = "ankole-standalone"
	// tokenAudience has the token be good at managers, and not at the API server.
	tokenAudience = "longhorn-backend"
	// tokenLife is longer than a cluster runs: the next start makes another token.
	tokenLife = 10 * 365 * 24 * time.Hour
)

// loginPage sends the browser that opens it to a link. The page there takes the token out of the
// address (docs/design/ui.md).
func loginPage(link string) string {
	return `<!doctype html><meta charset="utf-8"><title>Ankole</title><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url=` + link + `"><a href="` + link + `">Web UI of the cluster</a>
`
}

// makeToken writes a new token of an administrator for the REST API. The kubeconfig beside it gives
// as much. Earlier tokens end: while the cluster was down, a program of somebody else may have
// listened at its addresses, and been shown one.
func (c *Cluster) makeToken(ctx context.Context, namespace string) error {
	there := func(err error) error {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	fail := func(err error) error { return fmt.Errorf("token for the REST API: %w", err) }
	core := c.client.CoreV1()
	meta := metav1.ObjectMeta{Name: tokenAccount, Namespace: namespace}
	_, err := core.ServiceAccounts(namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if there(err) != nil {
		return fail(err)
	}
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: tokenAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: tokenAccount}},
	}, metav1.CreateOptions{})
	if there(err) != nil {
		return fail(err)
	}
	err = core.Secrets(namespace).Delete(ctx, tokenAccount, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fail(err)
	}
	bound, err := core.Secrets(namespace).Create(ctx, &v1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	if err != nil {
		return fail(err)
	}
	seconds := int64(tokenLife / time.Second)
	answer, err := core.ServiceAccounts(namespace).CreateToken(ctx, tokenAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{tokenAudience}, ExpirationSeconds: &seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: bound.Name,
				UID: bound.UID}}}, metav1.CreateOptions{})
	if err != nil {
		return fail(err)
	}
	token := answer.Status.Token
	files := map[string]string{tokenFile: token + "\n", headerFile: "Authorization: Bearer " + token + "\n",
		pageFile: loginPage(c.api() + "/#token=" + token)}
	for file, text := range files {
		if err := statedir.WriteFile(c.dir.Path(file), []byte(text), 0o600); err != nil {
			return fail(err)
		}
	}
	return nil
}
