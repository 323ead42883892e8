package s3

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// roleTimeout bounds the search for a role: where there is no metadata service, its address may
// leave requests without an answer.
const roleTimeout = 20 * time.Second

// keys are credentials that a Secret has.
func keys(c Config) aws.CredentialsProvider {
	credentials := aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey,
		SessionToken: c.SessionToken}
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return credentials, nil })
}

// role is who this process is to AWS, by what surrounds it: a token of its service account, the
// agent of EKS Pod Identity, or the metadata service of its machine, which kube2iam and its like
// stand in front of. Files of a user with keys are not looked for. It is found out when it is
// needed first; the client keeps what it gets until that expires.
type role struct {
	// region is where a token is exchanged for keys.
	region string
}

var _ aws.CredentialsProvider = (*role)(nil)

// Retrieve implements [aws.CredentialsProvider].
func (r *role) Retrieve(ctx context.Context) (aws.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	none := []string{}
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(r.region), config.WithSharedConfigFiles(none),
		config.WithSharedCredentialsFiles(none))
	var got aws.Credentials
	if err == nil {
		got, err = c.Credentials.Retrieve(ctx)
	}
	if err != nil {
		return got, fmt.Errorf("the target's Secret has no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and this Pod has no role "+
			"of AWS: %w", err)
	}
	return got, nil
}
