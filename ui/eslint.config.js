import a11y from 'eslint-plugin-jsx-a11y';
import hooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist', 'node_modules', 'src/api/types.gen.ts'] },
  { files: ['src/**/*.{ts,tsx}'], extends: [...tseslint.configs.strict, a11y.flatConfigs.strict],
    plugins: { 'react-hooks': hooks },
    rules: { 'react-hooks/rules-of-hooks': 'error', 'react-hooks/exhaustive-deps': 'error',
      'jsx-a11y/no-autofocus': 'off' } }, // the first field of a dialog
);
