-- SELECT a, explode(array(a, b)) AS e FROM r

-- @: rows, key _hw_key_1, _hw_key_2, changes signed
SELECT
  `a` AS `a`,
  `e` AS `e`,
  `_hw_key_1` AS `_hw_key_1`,
  `_hw_key_2` AS `_hw_key_2`,
  `_hw_file` AS `_hw_file`,
  `_hw_position` AS `_hw_position`,
  `_hw_row` AS `_hw_row`,
  `_hw_w`
FROM (
  SELECT
    `a`,
    `e`,
    `_hw_key_1`,
    `_hw_key_2`,
    `_hw_old__hw_key_1`,
    `_hw_old__hw_key_2`,
    `_hw_file`,
    `_hw_position`,
    `_hw_row`,
    `_hw_w`
  FROM (
    SELECT
      `a`,
      `e`,
      `_hw_key_1`,
      `_hw_key_2`,
      CAST(SUM(`_hw_w`) AS INT) AS `_hw_w`
    FROM (
      SELECT
        `a` AS `a`,
        `e` AS `e`,
        `r_rowid` AS `_hw_key_1`,
        `ordinal` AS `_hw_key_2`,
        `_hw_w`
      FROM (
        SELECT
          `a` AS `a`,
          `e` AS `e`,
          `r_rowid`,
          `ordinal`,
          `_hw_w`
        FROM (
          SELECT
            `a`,
            `b`,
            `e`,
            `r_rowid`,
            `ordinal`,
            `_hw_w`
          FROM (
            SELECT
              `a` AS `a`,
              `b` AS `b`,
              `rowid` AS `r_rowid`,
              `_hw_w`
            FROM `r@delta`
          ) AS _t
          LATERAL VIEW
          POSEXPLODE(ARRAY(`a`, `b`)) _g AS `ordinal`, `e`
        ) AS _t
      ) AS _t
    ) AS _t
    GROUP BY
      `a`,
      `e`,
      `_hw_key_1`,
      `_hw_key_2`
    HAVING
      SUM(`_hw_w`) <> 0
  ) AS _l
  LEFT JOIN (
    SELECT
      `_hw_key_1` AS `_hw_old__hw_key_1`,
      `_hw_key_2` AS `_hw_old__hw_key_2`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM `@@old`
  ) AS _r
    ON `_hw_key_1` IS NOT DISTINCT FROM `_hw_old__hw_key_1`
    AND `_hw_key_2` IS NOT DISTINCT FROM `_hw_old__hw_key_2`
) AS _t
