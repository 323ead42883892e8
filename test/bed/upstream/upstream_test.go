package upstream

import (
	"flag"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"   // events and Pods of a case that fails
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init" // flags that the framework reads
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"    // waits for nodes to be ready
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	_ "k8s.io/kubernetes/test/e2e/storage/external" // the cases
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	"ankole.storage/test/lack"
)

// TestMain defines the cases, which flag -storage.testdriver does while it is parsed.
func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	if framework.TestContext.KubeConfig != "" {
		framework.AfterReadingAllFlags(&framework.TestContext)
	}
	os.Exit(m.Run())
}

func TestExternalStorage(t *testing.T) {
	if framework.TestContext.KubeConfig == "" {
		lack.Skip(t, "no cluster is given; k8stest.TestUpstream makes one")
	}
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "External Storage", suite, reporter)
}
